package remote

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
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
		{limit.Check{Key: "k", Rule: r, N: -1}, limit.ErrInvalidN}, {limit.Check{Key: "k", N: 1}, limit.ErrNilRule},
	} {
		v, err := l.TakeAll(ctx, good, good, c.bad, good)
		if !errors.Is(err, c.err) || !strings.Contains(err.Error(), "check 2") || v.Allowed || v.By != 2 || v.Rule != c.bad.Rule || v.Source != limit.SourceInvalid {
			t.Errorf("%v: %+v, %v", c.bad, v, err)
		}
	}
	if v, err := l.TakeAll(ctx, slices.Repeat([]limit.Check{good}, redisstore.MaxChecks+1)...); err == nil || v.Allowed || v.By != -1 {
		t.Errorf("too many: %+v, %v", v, err)
	}
	// An invalid check is named before there are too many.
	if v, err := l.TakeAll(ctx, append(slices.Repeat([]limit.Check{good}, redisstore.MaxChecks+1), limit.Check{Key: "k"})...); !errors.Is(err, limit.ErrNilRule) || v.By != redisstore.MaxChecks+1 {
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
	many := make([]limit.Check, redisstore.MaxChecks)
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

// A client of several servers is asked for one shard at a time, and told so
// before anything is sent: none of these addresses answers.
func TestTakeAllOfSeveralShards(t *testing.T) {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	a, b := funnel(t, 10, 1, time.Hour), slidingLog(t, 10, time.Hour)
	for name, rdb := range map[string]redis.UniversalClient{"cluster": cluster, "ring": ring, "wrapped": struct{ *redis.ClusterClient }{cluster}} {
		l := limit.Must(New(rdb, Options{}))
		other := "y"
		for l.Shard(other) == l.Shard("x") {
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
	rdb.AddHook(redistest.Answers(answer))
	return limit.Must(New(rdb, Options{}))
}
