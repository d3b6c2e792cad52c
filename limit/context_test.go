package limit

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// memory is a limiter that answers as it is told, and remembers the last call.
type memory struct {
	res  Result
	back int64
	err  error

	key string
	n   int64
	ctx context.Context
}

func (m *memory) Take(key string, _ *Rule, n int64) Result {
	m.key, m.n = key, n
	return m.res
}

func (m *memory) TakeAll(checks ...Check) AllResult {
	last := len(checks) - 1
	if last < 0 {
		return AllResult{Result: m.res, By: -1}
	}
	m.key, m.n = checks[last].Key, checks[last].N
	return AllResult{Result: m.res, By: last, Rule: checks[last].Rule}
}

func (m *memory) Peek(key string, _ *Rule) Result {
	m.key, m.n = key, 0
	return m.res
}

func (m *memory) Refund(key string, _ *Rule, n int64) int64 {
	m.key, m.n = key, n
	return m.back
}

func (m *memory) WaitN(ctx context.Context, key string, _ *Rule, n int64) error {
	m.ctx, m.key, m.n = ctx, key, n
	return m.err
}

// settable has a Set that takes a context, and all else that is optional.
type settable struct {
	*memory
}

func (s *settable) Set(ctx context.Context, key string, _ *Rule, used int64) error {
	s.ctx, s.key, s.n = ctx, key, used
	return s.err
}

func (s *settable) Charge(key string, _ *Rule, n int64) int64 {
	s.key, s.n = key, n
	return s.back
}

func (s *settable) CheckRule(rule *Rule) error {
	if arith.Of(rule).Algorithm == arith.SlidingLog {
		return ErrUnsupported
	}
	return nil
}

// atOnce has a Set without a context.
type atOnce struct{ *memory }

func (s atOnce) Set(key string, _ *Rule, used int64) error {
	s.key, s.n = key, used
	return s.err
}

var (
	hundred = Must(PerMinute("hundred", 100))
	exact   = Must(SlidingLog("exact", 5, time.Minute))
)

// Each call reaches the limiter with its arguments, and its answer comes back. A context that
// has ended changes nothing where memory answers.
func TestWithContextPassesOn(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	broken := errors.New("broken")
	m := &memory{res: Result{Allowed: true, Limit: 100, Remaining: 7}, back: 4, err: broken}
	c := WithContext(m)
	got := func(what, key string, n int64) {
		t.Helper()
		if m.key != key || m.n != n {
			t.Errorf("%s: the limiter was asked for %d of %q", what, m.n, m.key)
		}
	}
	if res, err := c.Take(ctx, "take", hundred, 3); res != m.res || err != nil {
		t.Errorf("Take: %+v, %v", res, err)
	}
	got("Take", "take", 3)
	if res, err := c.TakeAll(ctx, Check{Key: "a", Rule: hundred}, Check{Key: "all", Rule: exact, N: 5}); res.Result != m.res || res.By != 1 || res.Rule != exact || err != nil {
		t.Errorf("TakeAll: %+v, %v", res, err)
	}
	got("TakeAll", "all", 5)
	if res, err := c.Peek(ctx, "peek", hundred); res != m.res || err != nil {
		t.Errorf("Peek: %+v, %v", res, err)
	}
	got("Peek", "peek", 0)
	if back, err := c.Refund(ctx, "refund", hundred, 6); back != 4 || err != nil {
		t.Errorf("Refund: %d, %v", back, err)
	}
	got("Refund", "refund", 6)
	if err := c.WaitN(ctx, "wait", hundred, 2); !errors.Is(err, broken) || m.ctx != ctx {
		t.Errorf("WaitN: %v", err)
	}
	got("WaitN", "wait", 2)
}

func TestWithContextSet(t *testing.T) {
	m := &memory{err: errors.New("broken")}
	for _, c := range []ContextLimiter{WithContext(&settable{memory: m}), WithContext(atOnce{m})} {
		m.ctx, m.key = nil, ""
		if err := c.Set(t.Context(), "set", hundred, 9); !errors.Is(err, m.err) || m.key != "set" || m.n != 9 {
			t.Errorf("%v, %q, %d", err, m.key, m.n)
		}
		if _, own := c.(*inContext).base.(*settable); own && m.ctx != t.Context() {
			t.Error("another context")
		}
	}
	if c := WithContext(m); !errors.Is(c.Set(t.Context(), "set", hundred, 9), errors.ErrUnsupported) {
		t.Error("a limiter without Set")
	}
}

func TestWithContextOptionalCalls(t *testing.T) {
	s := &settable{memory: &memory{}}
	c := WithContext(s)
	s.back = 3
	if n, err := c.Charge(t.Context(), "charge", hundred, 5); n != 3 || err != nil || s.key != "charge" || s.n != 5 {
		t.Errorf("%d charged, %v; asked for %d of %q", n, err, s.n, s.key)
	}
	bare := WithContext(s.memory)
	if n, err := bare.Charge(t.Context(), "charge", hundred, 5); n != 0 || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%d charged, %v", n, err)
	}
}

// What a limiter rejects is an error, and the error says why.
func TestWithContextErrors(t *testing.T) {
	c := WithContext(&settable{memory: &memory{res: Result{Source: SourceInvalid, RetryAfter: Never}}})
	bare := WithContext(&memory{res: Result{Source: SourceInvalid, RetryAfter: Never}})
	for _, q := range []struct {
		name string
		c    ContextLimiter
		rule *Rule
		n    int64
		want error
	}{
		{"negative", bare, hundred, -1, ErrInvalidN},
		{"no rule", bare, nil, 1, ErrNilRule},
		{"a rule that it does not support", c, exact, 1, ErrUnsupported},
		{"who knows why", bare, hundred, 1, ErrUnsupported},
	} {
		if res, err := q.c.Take(t.Context(), "k", q.rule, q.n); !errors.Is(err, q.want) || res.Allowed || res.RetryAfter != Never {
			t.Errorf("%s: Take %+v, %v", q.name, res, err)
		}
		v, err := q.c.TakeAll(t.Context(), Check{Key: "a", Rule: hundred}, Check{Key: "k", Rule: q.rule, N: q.n})
		if !errors.Is(err, q.want) || v.Allowed || !strings.Contains(err.Error(), "check 1") {
			t.Errorf("%s: TakeAll %+v, %v", q.name, v, err)
		}
		if q.n > 0 {
			if res, err := q.c.Peek(t.Context(), "k", q.rule); !errors.Is(err, q.want) || res.Allowed {
				t.Errorf("%s: Peek %+v, %v", q.name, res, err)
			}
		}
		back, err := q.c.Refund(t.Context(), "k", q.rule, q.n)
		if known := q.name != "who knows why"; back != 0 || known && !errors.Is(err, q.want) || !known && err != nil {
			t.Errorf("%s: Refund %d, %v", q.name, back, err)
		}
	}
	if v, err := bare.TakeAll(t.Context()); !errors.Is(err, ErrUnsupported) || v.By != -1 {
		t.Errorf("%+v, %v", v, err)
	}
}

// A limiter that is not there refuses.
func TestWithContextOfNil(t *testing.T) {
	for _, c := range []ContextLimiter{WithContext(nil), WithContext((*memory)(nil))} {
		if res, err := c.Take(t.Context(), "k", hundred, 1); !errors.Is(err, ErrClosed) || res.Allowed || res.Source != SourceInvalid {
			t.Errorf("Take: %+v, %v", res, err)
		}
		if res, err := c.TakeAll(t.Context()); !errors.Is(err, ErrClosed) || res.Allowed || res.By != -1 {
			t.Errorf("TakeAll: %+v, %v", res, err)
		}
		if res, err := c.Peek(t.Context(), "k", hundred); !errors.Is(err, ErrClosed) || res.Allowed {
			t.Errorf("Peek: %+v, %v", res, err)
		}
		if back, err := c.Refund(t.Context(), "k", hundred, 1); !errors.Is(err, ErrClosed) || back != 0 {
			t.Errorf("Refund: %d, %v", back, err)
		}
		for what, err := range map[string]error{
			"WaitN": c.WaitN(t.Context(), "k", hundred, 1), "Set": c.Set(t.Context(), "k", hundred, 1),
		} {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n, err := c.Charge(t.Context(), "k", hundred, 1); !errors.Is(err, ErrClosed) || n != 0 {
			t.Errorf("Charge: %d, %v", n, err)
		}
	}
}

func TestWithContextAllocatesNothing(t *testing.T) {
	c := WithContext(atOnce{&memory{res: Result{Allowed: true}, back: 1}})
	ctx, checks := t.Context(), []Check{{Key: "a", Rule: hundred}, {Key: "b", Rule: exact}}
	for name, f := range map[string]func(){
		"Take":    func() { _, _ = c.Take(ctx, "k", hundred, 1) },
		"TakeAll": func() { _, _ = c.TakeAll(ctx, checks...) },
		"Peek":    func() { _, _ = c.Peek(ctx, "k", hundred) },
		"Refund":  func() { _, _ = c.Refund(ctx, "k", hundred, 1) },
		"WaitN":   func() { _ = c.WaitN(ctx, "k", hundred, 1) },
		"Set":     func() { _ = c.Set(ctx, "k", hundred, 1) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
