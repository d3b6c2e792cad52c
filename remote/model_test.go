package remote

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The models: slow, with fractions of any size, and obviously right. Times are
// µs since the epoch.

type model interface {
	setRule(r *limit.Rule) // the next questions are asked under this one, of the same name
	fits(now, n int64) bool
	book(now, n int64)
	left(now int64) int64
	take(now, n int64) (allowed bool, remaining int64)
}

// taken is take of every model.
func taken(m model, now, n int64) (bool, int64) {
	allowed := m.fits(now, n)
	if allowed {
		m.book(now, n)
	}
	return allowed, m.left(now)
}

// funnelModel keeps the level in units and leaks it.
type funnelModel struct {
	capacity, rate *big.Rat // rate in units per µs
	level          *big.Rat
	at             int64
}

func newFunnelModel(capacity, units int64, per time.Duration) *funnelModel {
	rate := new(big.Rat).SetFrac(big.NewInt(units*1000), big.NewInt(int64(per)))
	return &funnelModel{capacity: new(big.Rat).SetInt64(capacity), rate: rate, level: new(big.Rat)}
}

func (m *funnelModel) setRule(r *limit.Rule) { m.capacity.SetInt64(r.Limit()) }

func (m *funnelModel) leak(now int64) {
	leaked := new(big.Rat).Mul(m.rate, new(big.Rat).SetInt64(now-m.at))
	m.at = now
	if m.level.Sub(m.level, leaked); m.level.Sign() < 0 {
		m.level.SetInt64(0)
	}
}

func (m *funnelModel) fits(now, n int64) bool {
	m.leak(now)
	return new(big.Rat).Add(m.level, new(big.Rat).SetInt64(n)).Cmp(m.capacity) <= 0
}

func (m *funnelModel) book(now, n int64) {
	m.leak(now)
	m.level.Add(m.level, new(big.Rat).SetInt64(n))
}

func (m *funnelModel) left(now int64) int64 {
	m.leak(now)
	return floor(new(big.Rat).Sub(m.capacity, m.level))
}

func (m *funnelModel) take(now, n int64) (bool, int64) { return taken(m, now, n) }

func floor(r *big.Rat) int64 {
	if r.Sign() < 0 {
		return 0
	}
	return new(big.Int).Quo(r.Num(), r.Denom()).Int64()
}

// windowModel keeps every bucket for ever, and when its last unit came.
type windowModel struct {
	rule        *limit.Rule
	units, last map[int64]int64
}

func newWindowModel(rule *limit.Rule) *windowModel {
	return &windowModel{rule, map[int64]int64{}, map[int64]int64{}}
}

func (m *windowModel) count(now int64) (count int64) {
	width, kept := arith.Of(m.rule).Width.Microseconds(), int64(arith.Of(m.rule).Kept)
	for age := range kept + 1 {
		id := now/width - age
		part := m.units[id]
		if age > 0 && age == kept {
			part -= arith.Of(m.rule).Gone(part, m.last[id]*1000, now%width*1000)
		}
		count += part
	}
	return count
}

func (m *windowModel) setRule(r *limit.Rule) { m.rule = r }

func (m *windowModel) fits(now, n int64) bool {
	return n <= m.rule.Limit() && m.count(now)+n <= m.rule.Limit()
}

func (m *windowModel) book(now, n int64) {
	if n > 0 {
		width := arith.Of(m.rule).Width.Microseconds()
		m.units[now/width] += n
		m.last[now/width] = max(m.last[now/width], now%width)
	}
}

func (m *windowModel) left(now int64) int64 { return max(m.rule.Limit()-m.count(now), 0) }

func (m *windowModel) take(now, n int64) (bool, int64) { return taken(m, now, n) }

// logModel keeps every unit for ever.
type logModel struct {
	limit, width int64
	at           []int64
}

func (m *logModel) setRule(r *limit.Rule) { m.limit = r.Limit() }

func (m *logModel) count(now int64) (count int64) {
	for _, at := range m.at {
		if at > now-m.width {
			count++
		}
	}
	return count
}

func (m *logModel) fits(now, n int64) bool { return m.count(now)+n <= m.limit }

func (m *logModel) book(now, n int64) {
	for range n {
		m.at = append(m.at, now)
	}
}

func (m *logModel) left(now int64) int64 { return max(m.limit-m.count(now), 0) }

func (m *logModel) take(now, n int64) (bool, int64) { return taken(m, now, n) }

// Every decision and every remainder is that of the model, and whoever is
// refused succeeds after exactly the wait that was named, and not a
// microsecond before. [FuzzNumbers] does the same for any rule.
//
// Fault 59: waiting as long as told is enough, 1 µs less is not.
func TestAgainstModels(t *testing.T) {
	const day = 24 * time.Hour
	for i, c := range []struct {
		kind      uint8 // as of modelOf
		limit     int64
		units     int64
		per       time.Duration
		buckets   int
		mostPause time.Duration // between two questions
	}{
		{0, 7, 7, 3 * time.Second, 0, time.Second},
		{0, 1, 1, 30 * day, 0, 20 * day},
		{0, 1000, 10_000_000, time.Second, 0, 100 * time.Microsecond},
		{0, 1 << 47, 4_500_000_000_000, 365 * day, 0, 30 * day},
		{0, 13, 11, 17_000_051 * time.Nanosecond, 0, 10 * time.Millisecond},
		{1, 10, 0, time.Second, 1, 300 * time.Millisecond},
		{1, 10, 0, 7 * time.Second, 3, time.Second},
		{1, 100, 0, time.Minute, 60, 5 * time.Second},
		{1, 1 << 53, 0, 365 * day, 7, 20 * day},
		{1, 1<<53 - 1, 0, 100 * 365 * day, 1, 200 * day},
		{1, 5, 0, time.Millisecond, 1000, 100 * time.Microsecond},
		{2, 10, 0, 7 * time.Second, 0, time.Second},
		{3, 10, 0, 7 * time.Second, 0, time.Second},
	} {
		rule, m := modelOf(c.kind, c.limit, c.units, int64(c.per), c.buckets)
		b, rng := onMini(t), rand.New(rand.NewPCG(1, uint64(i)))
		l := b.limiter()
		for range 200 {
			b.advance(time.Duration(rng.Int64N(int64(c.mostPause)/1000+1)) * time.Microsecond)
			n := rng.Int64N(4)
			if c.limit > 1<<50 || rng.IntN(8) == 0 {
				n = rng.Int64N(min(c.limit, 1<<53-1) + 1)
			}
			b.ask(l, rule, m, n, rng.IntN(4) == 0)
		}
		b.everyKeyExpires()
	}
}

// ask asks the limiter and the model for n units, and compares. If they are refused and wait is set, it asks
// again when the wait that was named is over, and just before.
func (b *backend) ask(l *Limiter, r *limit.Rule, m model, n int64, wait bool) {
	b.t.Helper()
	peek, err := l.Peek(ctx, "k", r)
	if err != nil {
		b.t.Fatal(err)
	}
	res := take(b.t, l, "k", r, n)
	yes, remaining := m.take(b.at.UnixMicro(), min(n, math.MaxInt64/2))
	yes = yes || n == 0 // nothing is always allowed
	if res.Allowed != yes || res.Remaining != remaining || res.ResetAfter < 0 || res.Allowed != (res.RetryAfter == 0) {
		b.t.Fatalf("%v, n = %d at %v: %s, the model says %v, %d", r, n, b.at, show(res), yes, remaining)
	}
	if n == 1 && (peek.Allowed != yes || peek.RetryAfter != res.RetryAfter || peek.Allowed && peek.Remaining != remaining+1) {
		b.t.Fatalf("%v at %v: a peek says %s, then %s", r, b.at, show(peek), show(res))
	}
	if never := n > r.Limit(); never != (res.RetryAfter == limit.Never) {
		b.t.Fatalf("%v, n = %d: %s", r, n, show(res))
	}
	// Redis' time as the scripts count it ends in 2255.
	ends := b.at.Add(min(res.RetryAfter, arith.MaxWindow)).Year() > 2200
	if wait && !yes && n <= r.Limit() && !ends {
		b.waitExactly(l, r, m, n, res.RetryAfter)
	}
}

// The products that decide on a window reach 2^106. Two that differ by one
// there are equal as doubles.
//
// Fault 48: products up to 2^106 decide exactly.
func TestWindowProductsAreExact(t *testing.T) {
	b := onMini(t)
	l := b.limiter()
	shape := sliding(t, 1, 10*365*24*time.Hour, 1)
	width := arith.Of(shape).Width.Microseconds()
	w, inverse := big.NewInt(width), (*big.Int)(nil)
	b.advance(time.Duration(width-b.now()%width) * time.Microsecond) // most of the oldest bucket still counts
	for inverse == nil {
		b.advance(time.Microsecond)
		inverse = new(big.Int).ModInverse(big.NewInt(width-b.now()%width), w)
	}
	// The last unit came at the end: (oldest - 1) · left = room · width + 1.
	left := big.NewInt(width - b.now()%width)
	oldest := new(big.Int).Add(inverse, new(big.Int).Mul(w, big.NewInt(20)))
	room := new(big.Int).Quo(new(big.Int).Mul(oldest, left), w).Int64()
	state := fmt.Sprintf("w 0 7 %d %d:%v:%d", width, b.now()/width-1, oldest.Add(oldest, big.NewInt(1)), width)
	for extra, want := range map[int64]bool{0: false, 1: true} {
		rule := sliding(t, room+1+extra, 10*365*24*time.Hour, 1)
		b.set(l.store.Keyspace().CounterKey(rule, "k"), state)
		if got := take(t, l, "k", rule, 1); got.Allowed != want {
			t.Errorf("room for %d more: %s", extra, show(got))
		}
	}
}

// waitExactly moves time by a wait, less one microsecond, then by the rest.
func (b *backend) waitExactly(l *Limiter, rule *limit.Rule, m model, n int64, wait time.Duration) {
	b.t.Helper()
	if wait < time.Nanosecond {
		b.t.Fatalf("refused %d, to be asked again in %v", n, wait)
	}
	us := int64((wait + time.Microsecond - 1) / time.Microsecond)
	for i, step := range []int64{us - 1, 1} {
		b.advance(time.Duration(step) * time.Microsecond)
		got := take(b.t, l, "k", rule, n)
		allowed, _ := m.take(b.at.UnixMicro(), n)
		if last := i == 1; got.Allowed != last || allowed != last {
			b.t.Fatalf("%d units of %v after a wait of %v, last step %v: %s, the model says %v", n, rule, wait, last, show(got), allowed)
		}
	}
}

// Extreme numbers, on the real Redis too: nothing wraps, nothing is refused by
// it, everything has a TTL.
//
// Faults 44, 46, 48: the largest rules on a real server: nothing wraps, every TTL is sane.
func TestExtremeNumbers(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		s := b.store()
		l := &Limiter{store: s}
		century := arith.MaxWindow
		for i, rule := range []*limit.Rule{
			funnel(t, 1<<53, 1<<53, time.Second), funnel(t, 1<<53, 1<<53, century), funnel(t, 1, 1, century),
			funnel(t, 100, 10_000_000, time.Second), funnel(t, 1, 1, 30*24*time.Hour),
			sliding(t, 1<<53, century, 1), sliding(t, 1<<53, century, 1000), sliding(t, 1, time.Millisecond, 1000), fixed(t, 1<<53, century),
		} {
			key := fmt.Sprintf("k%d", i)
			if got := take(t, l, key, rule, rule.Limit()); !got.Allowed {
				t.Errorf("%v, all of it: %s", rule, show(got))
			}
			op := report.Report{Key: s.Keyspace().CounterKey(rule, key), Rule: rule, Units: 1<<63 - 1, Ahead: arith.Of(rule).Cost(1<<63 - 1)}
			if arith.Of(rule).Algorithm != arith.TokenBucket {
				op.Buckets = []report.Bucket{{ID: b.now() / arith.Of(rule).Width.Microseconds(), Units: 1<<63 - 1, Last: arith.Of(rule).Width}}
			}
			for seq := int64(1); seq <= 3; seq++ {
				r := exec(t, s, &redisstore.Batch{Node: "n" + key, Seq: seq, Prev: seq - 1, Ops: []report.Report{op}})
				if st := r.States[0]; st.Err != nil || arith.Of(rule).Algorithm == arith.TokenBucket && st.Level.NS <= 0 {
					t.Errorf("%v, over and over: %+v", rule, r)
				}
			}
			got := take(t, l, key, rule, 1)
			if arith.Of(rule).Width != time.Microsecond && (got.Allowed || got.Remaining != 0) {
				t.Errorf("%v, in debt: %s", rule, show(got))
			}
		}
		b.everyKeyExpires()
	})
}

// Many units of a log at one instant are as many members.
func TestLogInChunks(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l, rule := b.limiter(), slidingLog(t, 5000, time.Hour)
		for _, n := range []int64{2500, 1, 1, 2498} {
			if got := take(t, l, "k", rule, n); !got.Allowed {
				t.Fatalf("%d: %s", n, show(got))
			}
		}
		if n := b.rdb.ZCard(ctx, l.store.Keyspace().CounterKey(rule, "k")).Val(); n != 5000 {
			t.Errorf("%d members, want 5000", n)
		}
		if got := take(t, l, "k", rule, 1); got.Allowed || got.RetryAfter < 59*time.Minute {
			t.Errorf("one more: %s", show(got))
		}
	})
}
