package redisstore

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

func checkDecoded(t *testing.T, r Reply, err error, ops []report.Report) {
	t.Helper()
	if err != nil {
		if !errors.Is(err, ErrBadReply) || !strings.HasPrefix(err.Error(), "remote: ") {
			t.Errorf("error %v", err)
		}
		return
	}
	if r.Verdict < VerdictApplied || r.Verdict > VerdictOther || r.Now < 0 {
		t.Errorf("decoded %+v", r)
	}
	if r.States != nil && len(r.States) != len(ops) {
		t.Errorf("%d states for %d ops", len(r.States), len(ops))
	}
	for _, s := range r.States {
		if s.Gen < 0 || s.Level.Rem < 0 || len(s.Buckets) > 11 {
			t.Errorf("decoded state %+v", s)
		}
		for i, b := range s.Buckets {
			if b.ID < 0 || b.ID > arith.MaxUnits || b.Units < 0 || b.Units > arith.MaxUnits || b.Last < 0 || b.Last > arith.Of(ops[1].Rule).Width || i > 0 && s.Buckets[i-1].ID >= b.ID {
				t.Errorf("decoded buckets %+v", s.Buckets)
			}
		}
	}
}

func TestDecodeRejects(t *testing.T) {
	ops := []report.Report{{Key: "f", Rule: funnel(t, 10, 7, time.Second)}}
	good := []string{"a", "1760000000123456", "f", "0", "7", "12", "6999"}
	between := func(i int) string { return map[int]string{0: "", 2: "\n"}[i] }
	written := func(words []string) (text string) {
		for i, w := range words {
			if b := between(i); b != "" || i == 0 {
				text += b + w
			} else {
				text += " " + w
			}
		}
		return text
	}
	const now = 1760000000123456
	if r, err := decodeBatch(written(good), ops); err != nil || r.Now != now*time.Microsecond || r.States[0].Level.NS > (12-now)*1000+1000 || r.States[0].Level.NS < (12-now)*1000 {
		t.Fatalf("the good reply: %+v, %v", r, err)
	}
	if r, err := decodeBatch("a 1760000000123456\n1760000000123458 7", ops); err != nil || r.States[0].Gen != 0 || r.States[0].Born != now || r.States[0].Level != (arith.Span{NS: 2001}) {
		t.Fatalf("the good reply in short: %+v, %v", r, err)
	}
	if r, err := decodeBatch("a 1760000000123456\ne no\"way", ops); err != nil || r.States[0].Err == nil {
		t.Fatalf("a key that failed: %+v, %v", r, err)
	}
	for i := range good {
		for _, bad := range []string{"x", "-1", "", "007", "nan", "9007199254740993", "99999999999999999999", " ", "1 ", "1\n"} {
			words := slices.Clone(good)
			words[i] = bad
			if _, err := decodeBatch(written(words), ops); !errors.Is(err, ErrBadReply) {
				t.Errorf("word %d = %q: %v", i, bad, err)
			}
		}
		if _, err := decodeBatch(written(good[:i]), ops); !errors.Is(err, ErrBadReply) {
			t.Errorf("cut after %d: %v", i, err)
		}
	}
	for _, bad := range []string{
		written(good) + " 1", written(good) + "\n", written(good) + "\n1 1", written(good) + " ", "a 1760000000123456", "a 1760000000123456\n",
		"l 1\nf 0 1 1 1", "l 1\n", "a 1760000000123456\n\n", "a 1760000000123456\nw 0 7 1:1:1", "a 1760000000123456\ng0 7 1 1", "a 1760000000123456\ne",
		"a 1760000000123456\n1760000000123458 7000",
	} {
		if r, err := decodeBatch(bad, ops); !errors.Is(err, ErrBadReply) {
			t.Errorf("%q passed: %+v", bad, r)
		}
	}
	for _, bad := range []any{nil, []any{}, []any{"a", "1760000000123456"}, int64(1), true} {
		if _, err := decodeBatch(bad, ops); !errors.Is(err, ErrBadReply) {
			t.Errorf("%v passed", bad)
		}
	}
}

// Faults 46, 48: times cross to Lua and back without growing shorter.
func FuzzWireSpan(f *testing.F) {
	f.Add(int64(7), int64(3e9), int64(2))
	f.Add(int64(arith.MaxUnits), int64(3600e9), int64(12345))
	f.Add(int64(arith.MaxUnits), int64(3599999999999), int64(12347))
	f.Add(int64(maxDenominator/1000+1), int64(1e9), int64(1))
	f.Fuzz(func(t *testing.T, units, per, n int64) {
		rule, err := limit.TokenBucket("f", units, time.Duration(per), 1)
		if err != nil || n < 0 {
			t.Skip()
		}
		s := arith.Of(rule).Cost(n)
		w := toWire(rule, s)
		if w.us < 0 || w.us > maxExact || w.rem < 0 || w.rem >= denominator(rule) {
			t.Fatalf("%v of %v crosses as %+v", s, rule, w)
		}
		back := fromWire(rule, w)
		if s.NS/1000 > maxExact {
			return
		}
		if back.Less(s) || denominator(rule) == 1000*units && back != s || back.NS-s.NS > 1 {
			t.Errorf("%v of %v comes back as %v (%+v)", s, rule, back, w)
		}
	})
}

func TestClassifyKnowsWords(t *testing.T) {
	for _, p := range prefixes {
		err := Wrap(reply(p.prefix + " some more words"))
		if class, reason := Classify(err); class != p.class || reason != p.reason {
			t.Errorf("%v: %v %q, want %v %q", err, class, reason, p.class, p.reason)
		}
	}
	if class, reason := Classify(nil); class != 0 || reason != "" {
		t.Errorf("no error: %v %q", class, reason)
	}
	if class, reason := Classify(reply("ERR what is that")); class != ClassUnavailable || reason != "error" {
		t.Errorf("unknown: %v %q", class, reason)
	}
	for _, again := range []string{"ERR OOM no", "ERR ERR OOM no", "ERR -OOM no"} {
		if _, reason := Classify(reply(again)); reason != "oom" {
			t.Errorf("%q, raised again: %q", again, reason)
		}
	}
	nested := reply("ERR Error running script (call to f_1): @user_script:3: @user_script: 3: -OOM command not allowed when used memory > 'maxmemory'.")
	if _, reason := Classify(nested); reason != "oom" {
		t.Errorf("quoted OOM: %q", reason)
	}
}

// reply is an error that Redis sent.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}
