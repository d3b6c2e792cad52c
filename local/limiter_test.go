package local

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/limit"
)

func TestNewRejectsBadOptions(t *testing.T) {
	for _, n := range []int{-1, math.MinInt, 1<<26 + 1} {
		l, err := New(Options{MaxKeys: n})
		if err == nil || l != nil || !strings.HasPrefix(err.Error(), "local: MaxKeys") {
			t.Errorf("MaxKeys %d: %v", n, err)
		}
	}
}

func everyRule(tb testing.TB, lim int64) []*limit.Rule {
	tb.Helper()
	return []*limit.Rule{
		limit.Must(limit.Funnel("r", lim, 1, time.Hour)),
		limit.Must(limit.SlidingWindow("r", lim, time.Hour)),
		limit.Must(limit.SlidingWindowBuckets("r1", lim, time.Hour, 1)),
		limit.Must(limit.FixedWindow("r", lim, time.Hour)),
		limit.Must(limit.SlidingLog("r", lim, time.Hour)),
		limit.Must(limit.Quota("r", lim, limit.Calendar{Unit: limit.Day})),
	}
}

// Questions that cannot be asked: refused for ever, counted, and without effect.
//
// Fault 42: a negative number is refused, counted and without effect.
func TestInvalidQuestions(t *testing.T) {
	var zero Limiter
	for name, l := range map[string]*Limiter{"new": newLimiter(t, Options{}), "zero": &zero} {
		asked := int64(0)
		rules := append(everyRule(t, 5), nil, new(limit.Rule))
		for _, rule := range rules {
			ns := []int64{-1, math.MinInt64, -5}
			if !rule.Valid() {
				ns = append(ns, 0, 1, math.MaxInt64)
			}
			for _, n := range ns {
				asked += 2
				if got, want := l.Take("k", rule, n), decision.Invalid(rule); got != want {
					t.Errorf("%s: Take(%v, %d) = %+v, want %+v", name, rule, n, got, want)
				}
				if l.AllowN("k", rule, n) {
					t.Errorf("%s: AllowN(%v, %d) = true", name, rule, n)
				}
			}
			if name == "zero" || !rule.Valid() {
				asked += 2
				if res := l.Peek("k", rule); res.Allowed || res.RetryAfter != limit.Never {
					t.Errorf("%s: Peek(%v) = %+v", name, rule, res)
				}
				if l.Allow("k", rule) {
					t.Errorf("%s: Allow(%v) = true", name, rule)
				}
				continue
			}
			if res := l.Peek("k", rule); res.Remaining != 5 {
				t.Errorf("%s: a negative n changed %v: %+v", name, rule, res)
			}
		}
		if got := l.Stats().Invalid; got != asked {
			t.Errorf("%s: Invalid = %d, want %d", name, got, asked)
		}
		l.Close()
	}
}

// Faults 41, 43, 44: 0, more than the limit, and the largest number twice.
func TestSizesOfN(t *testing.T) {
	l := newLimiter(t, Options{Clock: clock.NewManual(start)})
	for _, rule := range everyRule(t, 5) {
		for _, n := range []int64{6, math.MaxInt64, math.MaxInt64} {
			res := l.Take("k", rule, n)
			if res.Allowed || res.RetryAfter != limit.Never || res.Remaining != 5 {
				t.Errorf("%v: Take(%d) = %+v", rule, n, res)
			}
		}
		if res := l.Take("k", rule, 0); !res.Allowed || res.Remaining != 5 || res.RetryAfter != 0 {
			t.Errorf("%v: Take(0) = %+v", rule, res)
		}
		if res := l.Take("k", rule, 5); !res.Allowed || res.Remaining != 0 {
			t.Errorf("%v: Take(5) = %+v", rule, res)
		}
		if res := l.Take("k", rule, 0); !res.Allowed || res.Remaining != 0 {
			t.Errorf("%v: Take(0) of an exhausted key = %+v", rule, res)
		}
		if res := l.Take("k", rule, 1); res.Allowed || res.RetryAfter <= 0 || res.RetryAfter == limit.Never {
			t.Errorf("%v: Take(1) of an exhausted key = %+v", rule, res)
		}
	}
}

// Fault 45: a limit of 0 refuses everything, for ever.
func TestLimitZeroRefusesAll(t *testing.T) {
	l := newLimiter(t, Options{})
	for _, rule := range everyRule(t, 0) {
		if res := l.Take("k", rule, 1); res.Allowed || res.RetryAfter != limit.Never {
			t.Errorf("%v: %+v", rule, res)
		}
		if !l.AllowN("k", rule, 0) {
			t.Errorf("%v: 0 units refused", rule)
		}
	}
}

// A clock that goes back, as no clock should, hands nothing out twice and
// refuses nobody for ever.
//
// Fault 35: nothing is handed out twice, nobody is refused for ever.
func TestClockGoingBack(t *testing.T) {
	for _, rule := range everyRule(t, 5) {
		c := clock.NewManual(start)
		l := newLimiter(t, Options{Clock: c})
		admitted := 0
		for range 100 {
			if l.Allow("k", rule) {
				admitted++
			}
			c.Advance(-time.Minute)
		}
		if admitted != 5 {
			t.Errorf("%v: admitted %d of 5", rule, admitted)
		}
		c.Set(start.Add(1000 * time.Hour))
		if !l.AllowN("k", rule, 5) {
			t.Errorf("%v: refused long after", rule)
		}
	}
}

// Keys are bytes: nothing in them means anything, and no two are alike.
//
// Fault 49: keys are bytes.
func TestStrangeKeys(t *testing.T) {
	l := newLimiter(t, Options{})
	keys := []string{"", "\x00", "\x00\x00", "a\r\nb", "\xff\xfe", "👾", "{", "}", "}{", "(overflow)", strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20) + "y"}
	for _, rule := range everyRule(t, 2) {
		for _, k := range keys {
			for i := range 4 {
				if got := l.Allow(k, rule); got != (i < 2) {
					t.Errorf("%v: %.20q: call %d: %v", rule, k, i, got)
				}
			}
		}
	}
}

// A key is kept longer than its caller's string may be valid for: the string
// may be a view of a buffer that is used again.
func TestKeyIsCopied(t *testing.T) {
	l := newLimiter(t, Options{})
	big := strings.Repeat("x", 1<<20)
	before := heap()
	for i := range 50 {
		big := big + fmt.Sprint(i)
		l.Allow(big[len(big)-8:], slow(1))
	}
	if grown := heap() - before; grown > 10<<20 {
		t.Errorf("50 short keys keep %d bytes alive", grown)
	}
}

func TestCloseKeepsCounting(t *testing.T) {
	l, err := New(Options{MaxKeys: 1000, Clock: clock.NewManual(start)})
	if err != nil {
		t.Fatal(err)
	}
	rule := slow(10)
	for i := range 1000 {
		l.AllowN(fmt.Sprint(i), rule, int64(i%10+1))
	}
	before := runtime.NumGoroutine()
	l.Close()
	l.Close()
	until(t, "three goroutines to be gone", func() bool { return runtime.NumGoroutine() <= before-3 })
	for i := range 1000 {
		if got, want := l.Peek(fmt.Sprint(i), rule).Remaining, int64(9-i%10); got != want {
			t.Errorf("key %d: %d remaining, want %d", i, got, want)
		}
	}
	for range 3 { // new keys are answered too, if need be together
		for i := range 10_000 {
			l.Allow(fmt.Sprint("new", i), rule)
		}
	}
	if s := l.Stats(); s.Keys > s.Room {
		t.Errorf("%+v", s)
	}
}

// Closing while everybody asks: no panic, no race, and no unit too many.
//
// Fault 33: checks from many goroutines while the table closes.
func TestCloseWhileAsked(t *testing.T) {
	const keys = 300
	for range 10 {
		l, err := New(Options{MaxKeys: 200})
		if err != nil {
			t.Fatal(err)
		}
		rule := slow(10)
		var admitted [keys]atomic.Int64
		var asked atomic.Int64
		var done atomic.Bool
		var wg sync.WaitGroup
		more := func() {
			n := asked.Load() + 2000
			until(t, "more checks", func() bool { return asked.Load() > n })
		}
		for g := range 4 {
			wg.Go(func() {
				for i := g; !done.Load(); i++ {
					asked.Add(1)
					if l.Allow(fmt.Sprint("k", i%keys), rule) {
						admitted[i%keys].Add(1)
					}
					if i%100 == 0 {
						l.Stats()
						l.Peek("k", rule)
						l.table.Range(func(*counter.Counter) bool { return true })
					}
				}
			})
		}
		more()
		var closers sync.WaitGroup
		for range 3 {
			closers.Go(func() { _ = l.Close() })
		}
		closers.Wait()
		more()
		done.Store(true)
		wg.Wait()
		for k := range admitted {
			if n := admitted[k].Load(); n > 10 {
				t.Errorf("k%d: admitted %d of 10", k, n)
			}
		}
		if s := l.Stats(); s.Forgotten != 0 {
			t.Errorf("%+v", s)
		}
	}
}

// The limiter's goroutines live in a bubble as well as outside, and its upkeep
// follows the bubble's time.
func TestInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.NewManual(start)
		begin := time.Now()
		tick := func(d time.Duration) {
			time.Sleep(d)
			c.Set(start.Add(time.Since(begin)))
		}
		l, err := New(Options{MaxKeys: 100, Clock: c})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		rule := limit.Must(limit.Funnel("r", 1, 1, time.Minute))
		for i := range 2000 {
			l.Allow(fmt.Sprint(i), rule)
		}
		synctest.Wait()
		if s := l.Stats(); s.Keys != 2000 {
			t.Errorf("%+v", s)
		}
		tick(2 * time.Minute)
		tick(time.Minute)
		synctest.Wait()
		if s := l.Stats(); s.Keys != 0 {
			t.Errorf("after all have become idle: %+v", s)
		}
	})
}

// Rules are told apart by name and algorithm, whatever the key.
func TestRuleIsANamespace(t *testing.T) {
	l := newLimiter(t, Options{})
	var rules []*limit.Rule
	for _, name := range []string{"a", "a:b", "ab"} {
		rules = append(rules, limit.Must(limit.Funnel(name, 3, 1, time.Hour)), limit.Must(limit.FixedWindow(name, 3, time.Hour)))
	}
	for _, rule := range rules {
		for _, key := range []string{"b:c", "c", "bc", ":c", ":bc"} {
			for i := range 6 {
				if got := l.Allow(key, rule); got != (i < 3) {
					t.Errorf("%v, %q, call %d: %v", rule, key, i, got)
				}
			}
		}
	}
	// The same name with another limit is the same counter.
	if res := l.Take("c", limit.Must(limit.Funnel("a", 5, 1, time.Hour)), 1); !res.Allowed || res.Remaining != 1 {
		t.Errorf("raised limit: %+v", res)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Without a number there is room for as many keys as the doc says.
func TestDefaultMaxKeys(t *testing.T) {
	if room := newLimiter(t, Options{}).Stats().Room; room != DefaultMaxKeys*5/4 {
		t.Errorf("room for %d keys", room)
	}
}
