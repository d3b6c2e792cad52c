package remote

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// together is several counters and their models, one after the other: slow, and
// obviously right.
type together struct {
	t      *testing.T
	b      *backend
	l      *Limiter
	rules  []*limit.Rule
	models map[string]model
}

// newTogether has rules of every algorithm, two of each name, whose windows last
// so many units of time.
func newTogether(t *testing.T, b *backend, unit time.Duration) *together {
	w := &together{t: t, b: b, l: b.limiter(), models: map[string]model{}}
	for _, n := range []int64{6, 9} {
		w.rules = append(w.rules, funnel(t, n, 7, 3*unit), sliding(t, n, 7*unit, 3), fixed(t, n, 5*unit), slidingLog(t, n, 4*unit))
	}
	for _, r := range w.rules {
		w.rules = append(w.rules, r.DryRun())
	}
	return w
}

// model returns the model of a check's counter, set to the check's limit.
func (w *together) model(q limit.Check) model {
	id := q.Rule.Name() + "/" + q.Key
	if w.models[id] == nil {
		switch arith.Of(q.Rule).Algorithm {
		case arith.TokenBucket:
			w.models[id] = newFunnelModel(1, arith.Of(q.Rule).Units, q.Rule.Period())
		case arith.SlidingLog:
			w.models[id] = &logModel{width: arith.Of(q.Rule).Width.Microseconds()}
		default:
			w.models[id] = newWindowModel(q.Rule)
		}
	}
	w.models[id].setRule(q.Rule)
	return w.models[id]
}

// sums returns the units that the checks of q's counter ask for.
func (w *together) sums(checks []limit.Check, q limit.Check) (real, dry int64) {
	for _, o := range checks {
		switch {
		case o.Key != q.Key || o.Rule.Name() != q.Rule.Name():
		case o.Rule.IsDryRun():
			dry = redisstore.AddUnits(dry, cmp.Or(o.N, 1))
		default:
			real = redisstore.AddUnits(real, cmp.Or(o.N, 1))
		}
	}
	return real, dry
}

// want returns what the models say, and has them book it.
func (w *together) want(now int64, checks []limit.Check) (admitted bool, fits []bool) {
	admitted, fits = true, make([]bool, len(checks))
	for i, q := range checks {
		sum, dry := w.sums(checks, q)
		if q.Rule.IsDryRun() {
			sum = redisstore.AddUnits(sum, dry)
		}
		fits[i] = w.model(q).fits(now, sum)
		admitted = admitted && (fits[i] || q.Rule.IsDryRun())
	}
	for i, q := range checks {
		if admitted && fits[i] {
			w.model(q).book(now, cmp.Or(q.N, 1))
		}
	}
	return admitted, fits
}

// expected returns what Take says of the same checks, now that they are decided:
// none of these questions consumes anything.
func (w *together) expected(checks []limit.Check, admitted bool, fits []bool) limit.AllResult {
	v := decision.None()
	held := map[string]int64{}
	for i, q := range checks {
		if admitted && fits[i] {
			held[q.Rule.Name()+q.Key] += cmp.Or(q.N, 1)
		}
	}
	for i, q := range checks {
		real, dry := w.sums(checks, q)
		switch {
		case admitted && fits[i]:
			res := take(w.t, w.l, q.Key, q.Rule, 0)
			res.Allowed, res.WouldRefuse, res.RetryAfter = true, false, 0 // a dry run may have left a debt
			decision.Add(&v, i, q.Rule, res)
		case admitted: // a dry run
			n := redisstore.AddUnits(real, dry)
			if n <= q.Rule.Limit() {
				n -= held[q.Rule.Name()+q.Key]
			}
			decision.Add(&v, i, q.Rule, take(w.t, w.l, q.Key, q.Rule, n))
		case !fits[i] && !q.Rule.IsDryRun():
			decision.Add(&v, i, q.Rule, take(w.t, w.l, q.Key, q.Rule, real))
		}
	}
	return v
}

// draw makes up checks.
func (w *together) draw(rng *rand.Rand) (checks []limit.Check) {
	for range 1 + rng.IntN(6) {
		n := []int64{0, 1, 1, 1, 2, 2, 3, 4, 7, math.MaxInt64}[min(rng.IntN(40), 9-rng.IntN(3))]
		if rng.IntN(30) > 0 && n > 9 {
			n = 1
		}
		rule := w.rules[rng.IntN(len(w.rules))]
		checks = append(checks, limit.Check{Key: fmt.Sprint("k", rng.IntN(3)), Rule: rule, N: n})
	}
	return checks
}

// compare asks for one draw and compares everything. Where time goes on by
// itself, waits are not compared.
func (w *together) compare(checks []limit.Check, exact bool) (v limit.AllResult) {
	w.t.Helper()
	now := w.b.now()
	before := w.b.dump()
	admitted, fits := w.want(now, checks)
	v, err := w.l.TakeAll(ctx, checks...)
	if err != nil || v.Allowed != admitted || v.Source != limit.SourceRemote {
		w.t.Fatalf("%v: %+v, %v, want admitted %v (%v)", checks, v, err, admitted, fits)
	}
	if after := w.b.dump(); !admitted && after != before {
		w.t.Fatalf("%v refused, and left\n%safter\n%s", checks, after, before)
	}
	want := w.expected(checks, admitted, fits)
	if exact && v != want || v.WouldRefuse != want.WouldRefuse {
		w.t.Fatalf("%v: %+v, want %+v", checks, v, want)
	}
	for _, q := range checks {
		m := w.model(q)
		if got := take(w.t, w.l, q.Key, q.Rule, 0); got.Remaining != m.left(now) {
			w.t.Fatalf("%v, then %v of %s: %s, the model says %d", checks, q.Rule, q.Key, show(got), m.left(now))
		}
	}
	return v
}

// Several checks together are decided as the models are, one after the other;
// the result is what Take says of the check that it names; and waiting as long
// as told is enough, 1 µs less is not.
func TestTakeAllAgainstModels(t *testing.T) {
	for seed := range uint64(limittest.Cases(6, 2)) {
		b := onMini(t)
		w := newTogether(t, b, time.Second)
		rng := rand.New(rand.NewPCG(11, seed))
		waits, would := 0, 0
		for range 250 {
			b.advance(time.Duration(rng.Int64N(700_000)) * time.Microsecond)
			checks := w.draw(rng)
			v := w.compare(checks, true)
			if v.WouldRefuse {
				would++
			}
			if !v.Allowed && v.RetryAfter != limit.Never && rng.IntN(3) == 0 {
				waits++
				us := (v.RetryAfter + time.Microsecond - 1) / time.Microsecond
				b.advance((us - 1) * time.Microsecond)
				if w.compare(checks, true).Allowed {
					t.Fatalf("%v admitted before the wait of %v is over", checks, v.RetryAfter)
				}
				b.advance(time.Microsecond)
				if v := w.compare(checks, true); !v.Allowed {
					t.Fatalf("%v: %+v after the wait", checks, v)
				}
			}
		}
		if waits < 10 || would < 10 {
			t.Errorf("%d waits and %d dry runs that would refuse: the draw is too tame", waits, would)
		}
		b.everyKeyExpires()
	}
}

// On the real server too, where nothing leaks within the time of a test.
func TestTakeAllAgainstModelsOnRedis(t *testing.T) {
	b := onReal(t)
	rng := rand.New(rand.NewPCG(12, 1))
	for range 40 {
		b.do("FLUSHALL")
		w := newTogether(t, b, 100_000*time.Hour)
		for range 12 {
			w.compare(w.draw(rng), false)
		}
	}
	b.everyKeyExpires()
}
