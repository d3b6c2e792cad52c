package remote

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/limit"
)

// takeAll asks and ends the test on an error.
func takeAll(t testing.TB, l *Limiter, checks ...limit.Check) limit.AllResult {
	t.Helper()
	v, err := l.TakeAll(ctx, checks...)
	if err != nil {
		t.Fatalf("%v: %v", checks, err)
	}
	return v
}

// The algorithms in one call. One that refuses is named, and nothing is
// written for any of them.
func TestTakeAllOrNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l, rules := b.limiter(), callRules(t)
		var checks []limit.Check
		for i, r := range rules {
			checks = append(checks, limit.Check{Key: fmt.Sprint("k", i), Rule: r, N: int64(i + 1)})
		}
		if v := takeAll(t, l, checks...); !v.Allowed || v.By != 4 || v.Remaining != 5 || v.Rule != rules[4] {
			t.Fatalf("the first: %+v", v)
		}
		for i, r := range rules {
			if got := remains(t, l, fmt.Sprint("k", i), r); got != int64(9-i) {
				t.Errorf("%v: %d remain", r, got)
			}
		}
		for i, r := range rules {
			before := b.dump()
			for _, n := range []int64{10, 11, math.MaxInt64} {
				bad := append([]limit.Check(nil), checks...)
				bad[i].N = n
				v, alone := takeAll(t, l, bad...), take(t, l, bad[i].Key, r, n)
				if v.Allowed || v.By != i || v.Rule != r || v.Remaining != int64(9-i) || (v.RetryAfter == limit.Never) != (n > 10) {
					t.Errorf("%v, n = %d: %+v", r, n, v)
				}
				if d := v.RetryAfter - alone.RetryAfter; d < 0 || d > pace {
					t.Errorf("%v, n = %d: a wait of %v, alone it is %v", r, n, v.RetryAfter, alone.RetryAfter)
				}
			}
			if after := b.dump(); after != before {
				t.Errorf("%v refused, and left\n%safter\n%s", r, after, before)
			}
		}
		b.everyKeyExpires()
	})
}

// dump returns all that is in Redis.
func (b *backend) dump() (all string) {
	b.t.Helper()
	keys := b.keys()
	slices.Sort(keys)
	for _, k := range keys {
		all += fmt.Sprintf("%q: %q %v\n", k, b.rdb.Get(ctx, k).Val(), b.rdb.ZRangeWithScores(ctx, k, 0, -1).Val())
	}
	return all
}

// Checks of one counter add up, and each of their rules must admit the sum.
func TestTakeAllOfOneCounter(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l := b.limiter()
		for _, r := range callRules(t) {
			low := built(t)(sameWith(r, 6))
			ask := func(n ...int64) (checks []limit.Check) {
				for i, n := range n {
					checks = append(checks, limit.Check{Key: "k", Rule: []*limit.Rule{r, low}[i%2], N: n})
				}
				return checks
			}
			for i, c := range []struct {
				n        []int64
				by       int
				allowed  bool
				never    bool
				remain10 int64
			}{
				{[]int64{2, 2}, 1, true, false, 6},  // 4 of 6 and of 10
				{[]int64{2, 1}, 1, false, false, 6}, // 7 of 6
				{[]int64{4, 3}, 1, false, true, 6},  // 7 can never be had of 6
				{[]int64{1, 1}, 1, true, false, 4},  // 6 of 6
				{[]int64{1, 1}, 1, false, false, 4}, // 8 of 6
				{[]int64{3}, 0, true, false, 1},     // alone, 9 of 10
				{[]int64{1, 0}, 1, false, false, 1}, // 11 of 10, and of 6: 0 stands for 1
				{[]int64{math.MaxInt64, math.MaxInt64}, 0, false, true, 1},
			} {
				v := takeAll(t, l, ask(c.n...)...)
				if v.Allowed != c.allowed || (v.RetryAfter == limit.Never) != c.never || remains(t, l, "k", r) != c.remain10 {
					t.Fatalf("%v, step %d: %+v, %d remain, want %+v", r, i, v, remains(t, l, "k", r), c)
				}
				if c.n[0] != 1 && v.By != c.by {
					t.Errorf("%v, step %d: %+v, want by %d", r, i, v, c.by)
				}
			}
		}
		b.everyKeyExpires()
	})
}

// sameWith is a rule like another, but for its limit.
func sameWith(r *limit.Rule, n int64) (*limit.Rule, error) {
	switch r.Algorithm() {
	case limit.AlgorithmFunnel:
		return limit.Funnel(r.Name(), n, r.Units(), r.Period())
	case limit.AlgorithmSlidingWindow:
		return limit.SlidingWindowBuckets(r.Name(), n, r.Period(), r.Buckets())
	case limit.AlgorithmFixedWindow:
		return limit.FixedWindow(r.Name(), n, r.Period())
	case limit.AlgorithmCalendar:
		return limit.Quota(r.Name(), n, r.Calendar())
	}
	return limit.SlidingLog(r.Name(), n, r.Period())
}

// Limits of one key that would re-express each other's counts are refused before
// anything is asked.
func TestTakeAllOfAnotherShape(t *testing.T) {
	b := onMini(t)
	l := b.limiter()
	for _, r := range [][2]*limit.Rule{
		{funnel(t, 10, 10, 100*time.Hour), funnel(t, 20, 3, 60*time.Hour)},
		{sliding(t, 10, 1000*time.Hour, 10), sliding(t, 20, 7000*time.Hour, 3)},
		{fixed(t, 10, 100_000*time.Hour), fixed(t, 20, 200_000*time.Hour)},
		{slidingLog(t, 10, 100*time.Hour), slidingLog(t, 20, 300*time.Hour)},
	} {
		v, err := l.TakeAll(ctx, limit.Check{Key: "k", Rule: r[0], N: 1}, limit.Check{Key: "k", Rule: r[1], N: 1})
		if !errors.Is(err, limit.ErrUnsupported) || v.Allowed || v.By != 1 || remains(t, l, "k", r[0]) != 10 {
			t.Errorf("%v: %+v, %v", r, v, err)
		}
		if v := takeAll(t, l, limit.Check{Key: "k", Rule: r[0], N: 1}, limit.Check{Key: "other", Rule: r[1], N: 1}); !v.Allowed {
			t.Errorf("%v, two keys: %+v", r, v)
		}
	}
}

// A dry run is in nobody's way, and takes only what fits.
func TestTakeAllDryRun(t *testing.T) {
	forCallRules(t, func(t *testing.T, _ *backend, l *Limiter, r *limit.Rule) {
		other := built(t)(limit.SlidingLog("other", 10, time.Hour))
		key := r.Algorithm().String()
		both := func(n, m int64) limit.AllResult {
			t.Helper()
			return takeAll(t, l, limit.Check{Key: key, Rule: r.DryRun(), N: n}, limit.Check{Key: key, Rule: other, N: m})
		}
		left := func(dry, real int64) {
			t.Helper()
			if d, o := remains(t, l, key, r), remains(t, l, key, other); d != dry || o != real {
				t.Fatalf("%d and %d remain, want %d and %d", d, o, dry, real)
			}
		}
		if v := both(6, 1); !v.Allowed || v.WouldRefuse || v.By != 0 {
			t.Fatalf("%+v", v)
		}
		left(4, 9)
		if v := both(5, 1); !v.Allowed || !v.WouldRefuse || v.By != 0 || v.RetryAfter <= 0 || v.Remaining != 4 || !v.Rule.IsDryRun() {
			t.Fatalf("%+v", v)
		}
		left(4, 8)
		if v := both(11, 1); !v.Allowed || !v.WouldRefuse || v.RetryAfter != limit.Never {
			t.Fatalf("%+v", v)
		}
		left(4, 7)
		if v := both(1, 8); v.Allowed || v.WouldRefuse || v.By != 1 {
			t.Fatalf("%+v", v)
		}
		left(4, 7)
		// The rule itself and its dry run: only the latter gives way.
		v := takeAll(t, l, limit.Check{Key: key, Rule: r, N: 3}, limit.Check{Key: key, Rule: r.DryRun(), N: 3})
		if !v.Allowed || !v.WouldRefuse || v.By != 1 {
			t.Fatalf("%+v", v)
		}
		left(1, 7)
	})
}

// What cannot be asked is refused with the check that is wrong, before anything
// is sent.
//
// Fault 87: refused, and said in the result.
func TestTakeAllBadQuestions(t *testing.T) {
	b := onMini(t)
	l, r := b.limiter(), funnel(t, 10, 1, time.Hour)
	good := limit.Check{Key: "k", Rule: r, N: 1}
	sent := b.mini.CommandCount()
	for _, c := range []struct {
		bad limit.Check
		err error
	}{
		{limit.Check{Key: "k", Rule: r, N: -1}, limit.ErrInvalidN}, {limit.Check{Key: "k", Rule: r, N: math.MinInt64}, limit.ErrInvalidN},
		{limit.Check{Key: "k", N: 1}, limit.ErrNilRule}, {limit.Check{Key: "k", Rule: new(limit.Rule), N: 1}, limit.ErrNilRule},
		{limit.Check{Key: "k", Rule: r.DryRun(), N: -1}, limit.ErrInvalidN},
	} {
		v, err := l.TakeAll(ctx, good, good, c.bad, good)
		if !errors.Is(err, c.err) || !strings.Contains(err.Error(), "check 2") || v.Allowed || v.By != 2 || v.Rule != c.bad.Rule || v.Source != limit.SourceInvalid {
			t.Errorf("%v: %+v, %v", c.bad, v, err)
		}
	}
	if v, err := l.TakeAll(ctx, slices.Repeat([]limit.Check{good}, MaxChecks+1)...); err == nil || v.Allowed || v.By != -1 {
		t.Errorf("too many: %+v, %v", v, err)
	}
	// An invalid check is named before there are too many.
	if v, err := l.TakeAll(ctx, append(slices.Repeat([]limit.Check{good}, MaxChecks+1), limit.Check{Key: "k"})...); !errors.Is(err, limit.ErrNilRule) || v.By != MaxChecks+1 {
		t.Errorf("too many, and no rule: %+v, %v", v, err)
	}
	// The first check is two for Redis. The error and the answer have the caller's number of the bad one.
	two := limit.Must(limit.Parse("two", "10/s, 100/m"))
	if v, err := l.TakeAll(ctx, limit.Check{Key: "q", Rule: two}, good, limit.Check{Key: "k", Rule: funnel(t, 10, 2, time.Hour)}); err == nil ||
		!strings.Contains(err.Error(), "remote: check 2: ") || v.By != 2 || v.Source != limit.SourceInvalid {
		t.Errorf("another shape behind a combined rule: %+v, %v", v, err)
	}
	if v, err := l.TakeAll(ctx); err != nil || !v.Allowed || v.By != -1 || v.Rule != nil {
		t.Errorf("none: %+v, %v", v, err)
	}
	if n := b.mini.CommandCount() - sent; n != 0 {
		t.Errorf("%d commands were sent", n)
	}
	many := make([]limit.Check, MaxChecks)
	for i := range many {
		many[i] = limit.Check{Key: fmt.Sprint("k", i), Rule: callRules(t)[i%4], N: 1}
	}
	if v := takeAll(t, l, many...); !v.Allowed || v.Remaining != 9 {
		t.Errorf("as many as can be: %+v", v)
	}
}

// So many buckets that Redis would be occupied for long are not asked for.
func TestTakeAllBuckets(t *testing.T) {
	b := onMini(t)
	l := b.limiter()
	var checks []limit.Check
	for i := range 20 {
		checks = append(checks, limit.Check{Key: fmt.Sprint(i), Rule: sliding(t, 10, 1000*time.Hour, 999), N: 1})
	}
	if v := takeAll(t, l, checks...); !v.Allowed {
		t.Errorf("20,000 buckets: %+v", v)
	}
	sent := b.mini.CommandCount()
	for _, rule := range callRules(t) {
		v, err := l.TakeAll(ctx, append(checks, limit.Check{Key: "one more", Rule: rule, N: 1})...)
		if !errors.Is(err, limit.ErrUnsupported) || !strings.Contains(err.Error(), "check 20") || v.Allowed || v.By != 20 || v.Rule != rule {
			t.Errorf("and %v: %+v, %v", rule, v, err)
		}
	}
	if n := b.mini.CommandCount() - sent; n != 0 {
		t.Errorf("%d commands were sent", n)
	}
}

// One broken key fails all, wherever it stands, and nothing is consumed.
func TestTakeAllBrokenKey(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l, rules := b.limiter(), callRules(t)
		for i, r := range rules {
			b.spoil(l, fmt.Sprint("broken", i), r)
		}
		before := b.dump()
		for i := range rules {
			var checks []limit.Check
			for j, r := range rules {
				key := "sound"
				if i == j {
					key = fmt.Sprint("broken", j)
				}
				checks = append(checks, limit.Check{Key: key, Rule: r, N: 1})
			}
			v, err := l.TakeAll(ctx, checks...)
			var broken *limit.KeyError
			if !errors.As(err, &broken) || broken.Key != l.store.Keyspace().CounterKey(rules[i], checks[i].Key) || v.Allowed || v.By != i || v.Rule != rules[i] {
				t.Errorf("%v: %+v, %v", rules[i], v, err)
			}
		}
		if after := b.dump(); after != before {
			t.Errorf("it left\n%safter\n%s", after, before)
		}
	})
}

// Many at a time, on a real server: not one unit more than the limit, and what
// was refused by one counter is not counted by the other.
func TestTakeAllConcurrently(t *testing.T) {
	const clients, tries, shared, each = 16, 60, 300, 25
	for _, r := range []*limit.Rule{funnel(t, shared, 1, 1000*time.Hour), sliding(t, shared, 100_000*time.Hour, 10), slidingLog(t, shared, 1000*time.Hour)} {
		t.Run(r.Algorithm().String(), func(t *testing.T) {
			b := onReal(t)
			l, own := b.limiter(), built(t)(limit.FixedWindow("own", each, 100_000*time.Hour))
			var wg sync.WaitGroup
			var admitted [clients]atomic.Int64
			for i := range clients {
				wg.Go(func() {
					for range tries {
						v, err := l.TakeAll(ctx, limit.Check{Key: "shared", Rule: r, N: 1},
							limit.Check{Key: fmt.Sprint(i), Rule: own, N: 1}, limit.Check{Key: "shared", Rule: r, N: 1})
						if err != nil {
							t.Error(err)
						}
						if v.Allowed {
							admitted[i].Add(1)
						}
					}
				})
			}
			wg.Wait()
			sum := int64(0)
			for i := range clients {
				n := admitted[i].Load()
				if got := remains(t, l, fmt.Sprint(i), own); got != each-n {
					t.Errorf("client %d was admitted %d times, and %d of %d remain", i, n, got, each)
				}
				sum += 2 * n
			}
			if got := remains(t, l, "shared", r); sum != shared || got != 0 {
				t.Errorf("%d units admitted of %d, %d remain", sum, shared, got)
			}
		})
	}
}

// A client of several servers is asked for one shard at a time, and told so
// before anything is sent: none of these addresses answers.
func TestTakeAllOfSeveralShards(t *testing.T) {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	a, b := funnel(t, 10, 1, time.Hour), slidingLog(t, 10, time.Hour)
	for name, rdb := range map[string]redis.UniversalClient{"cluster": cluster, "ring": ring, "wrapped": struct{ *redis.ClusterClient }{cluster}} {
		l, err := New(rdb, Options{})
		if err != nil {
			t.Fatal(err)
		}
		other := "y"
		for l.store.Keyspace().Shard(other) == l.store.Keyspace().Shard("x") {
			other += "y"
		}
		v, err := l.TakeAll(ctx, limit.Check{Key: "x", Rule: a, N: 1}, limit.Check{Key: "x", Rule: b, N: 1}, limit.Check{Key: other, Rule: a, N: 1})
		if !errors.Is(err, limit.ErrUnsupported) || !strings.Contains(err.Error(), "check 2") || !strings.Contains(err.Error(), "shard") || v.Allowed || v.By != 2 {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
		v, err = l.TakeAll(ctx, limit.Check{Key: "x", Rule: a, N: 1}, limit.Check{Key: "x", Rule: b, N: 1})
		if class, _ := Classify(err); class != ClassUnavailable || errors.Is(err, limit.ErrUnsupported) || v.Allowed {
			t.Errorf("%s, two rules of one key: %+v, %v", name, v, err)
		}
	}
}

// When Redis is gone, or may not write, that is the answer, and nothing has
// been consumed.
func TestTakeAllFaults(t *testing.T) {
	b := onReal(t)
	l := b.limiter()
	var checks []limit.Check
	for _, r := range callRules(t) {
		checks = append(checks, limit.Check{Key: "k", Rule: r, N: 1})
	}
	takeAll(t, l, checks...)
	fails := func(reason string) {
		t.Helper()
		v, err := l.TakeAll(ctx, checks...)
		wantClass(t, err, ClassUnavailable, reason)
		if v.Allowed || v.By != -1 {
			t.Errorf("%s: %+v", reason, v)
		}
	}
	before := b.dump()
	b.do("CONFIG", "SET", "maxmemory", "1")
	fails("oom")
	b.do("CONFIG", "SET", "maxmemory", "0")
	b.do("CONFIG", "SET", "min-replicas-to-write", "1")
	fails("noreplicas")
	b.do("CONFIG", "SET", "min-replicas-to-write", "0")
	if after := b.dump(); after != before {
		t.Errorf("it left\n%safter\n%s", after, before)
	}
	b.do("SCRIPT", "FLUSH")
	takeAll(t, l, checks...)
	b.real.Kill()
	poll(t, func() bool { // the first call finds the old connection closed
		v, err := l.TakeAll(ctx, checks...)
		_, reason := Classify(err)
		return !v.Allowed && reason == "refused"
	})
}

// Another program answers: an error, no panic, and nothing is admitted.
func TestTakeAllUnexpectedReplies(t *testing.T) {
	b := onMini(t)
	checks := []limit.Check{{Key: "k", Rule: funnel(t, 10, 1, time.Hour), N: 1}, {Key: "k", Rule: fixed(t, 10, time.Hour), N: 1}}
	for _, answer := range []any{
		nil, "x", int64(1), []any{}, []any{"1"}, []any{"e", "why"}, []any{"e", "why", "2"}, []any{"e", "why", "-1"}, []any{"e", int64(3), "1"},
		[]any{"0", "5", "1", "0", "0", "1", "1", "0", ""}, []any{"1", "5", "0", "0", "0", "1", "1", "0", ""}, []any{"1", "5", "1", "0", "0", "1", "1", "0"},
		[]any{"1", "5", "1", "0", "0", "1", "1", "0", "", "1"}, []any{"1", "-5", "1", "0", "0", "1", "1", "0", ""},
	} {
		l := b.lying(answer)
		if v, err := l.TakeAll(ctx, checks...); !errors.Is(err, ErrBadReply) || v.Allowed {
			t.Errorf("%v: %+v, %v", answer, v, err)
		}
	}
	if v, err := b.lying([]any{"1", "5", "1", "0", "0", "1", "1", "0", ""}).TakeAll(ctx, checks...); err != nil || !v.Allowed {
		t.Errorf("a reply as it should be: %+v, %v", v, err)
	}
}

// lying returns a limiter whose server gives one answer to everything.
func (b *backend) lying(answer any) *Limiter {
	b.t.Helper()
	rdb := dial(b.t, b.addr)
	rdb.AddHook(answerHook{answer})
	l, err := New(rdb, Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}
