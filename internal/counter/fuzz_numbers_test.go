package counter

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// extremes are numbers at which arithmetic goes wrong.
var extremes = []int64{
	0, 1, 2, 3, 7, 10, 1000, 1 << 31, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1 << 60, 1<<62 - 1, math.MaxInt64 - 1, math.MaxInt64,
	-1, -1 << 53, math.MinInt64, math.MinInt64 + 1,
}

// FuzzNumbers asks a counter for any n, at any time, under a rule of any
// numbers. Every answer is that of a reference, and a wait that is named is the
// shortest after which the same question succeeds.
//
// Faults 41, 42, 43, 44, 45, 46, 59: every answer is exact, and nothing wraps.
func FuzzNumbers(f *testing.F) {
	for kind := range uint8(4) {
		f.Add([]byte{0, 1, 2, 3, 40, 80, 6, 7, 8, 9, 250, 251}, int64(10), int64(3), int64(time.Second), kind, uint16(9))
		f.Add([]byte{9, 0, 9, 200, 9, 255, 8, 3, 10, 7}, int64(1)<<53, int64(1)<<53, int64(arith.MaxWindow), kind, uint16(999))
		f.Add([]byte{8, 9, 1, 2, 1, 255, 1, 254, 1, 200}, int64(1)<<53-1, int64(1), int64(time.Millisecond), kind, uint16(0))
		f.Add([]byte{1, 0, 1, 9, 0, 0, 14, 0, 15, 0, 17, 0}, int64(1), int64(1), int64(arith.MaxWindow), kind, uint16(1))
		f.Add([]byte{1, 0, 0, 9}, int64(0), int64(1), int64(1), kind, uint16(1))
		f.Add([]byte{4, 1, 4, 9, 4, 77, 4, 130}, int64(7), int64(7), int64(3*time.Second), kind, uint16(3))
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for kind := range uint8(200) {
		asks := make([]byte, 60)
		for i := range asks {
			asks[i] = byte(rng.Uint32())
		}
		f.Add(asks, rng.Int64N(1<<rng.IntN(16)), 1+rng.Int64N(1<<rng.IntN(24)), 1e6+rng.Int64N(1<<rng.IntN(42)), kind, uint16(rng.IntN(1<<rng.IntN(10))))
	}
	f.Fuzz(func(t *testing.T, asks []byte, capacity, units, per int64, kind uint8, buckets uint16) {
		r := anyRule(kind, capacity, units, per, int(buckets)%1000+1)
		if r == nil || len(asks) > 60 {
			t.Skip()
		}
		playNumbers(t, r, asks)
	})
}

// anyQuota returns a rule with some calendar.
func anyQuota(capacity, some int64) (*limit.Rule, error) {
	some &= 1<<40 - 1
	c := limit.Calendar{Unit: limit.Unit(1 + some%3), Zone: time.FixedZone("any", int(some%86400-43200))}
	if c.Unit != limit.Day {
		c.First = int(some % 8)
	}
	return limit.Quota("q", capacity, c)
}

func anyRule(kind uint8, capacity, units, per int64, buckets int) (r *limit.Rule) {
	switch kind % 5 {
	case 0:
		r, _ = limit.TokenBucket("f", units, time.Duration(per), capacity)
	case 1:
		r, _ = limit.SlidingWindowBuckets("w", capacity, time.Duration(per), buckets)
	case 2:
		r, _ = limit.FixedWindow("x", capacity, time.Duration(per))
	case 3:
		r, _ = anyQuota(capacity, per)
	default:
		r, _ = limit.SlidingLog("l", capacity, time.Duration(per))
	}
	return r
}

func playNumbers(t *testing.T, r *limit.Rule, asks []byte) {
	now := start.UnixNano()
	c, m := NewAlone("k", r, nil, now), limittest.NewReference(r)
	for ; len(asks) >= 2; asks = asks[2:] {
		n, step := extremes[int(asks[0])%len(extremes)], big.NewInt(int64(arith.Of(r).Horizon()))
		if asks[0] > 200 { // something near the limit
			n = r.Limit() - int64(asks[0]-228)
		}
		// Up to a fraction of all the time that may matter, or a few ns.
		if step.Rsh(step, uint(asks[1]%64)); asks[1] < 192 {
			now += step.Int64()
		}
		if now > math.MaxInt64/2 || now < 0 {
			return // 2116, or so much later that it wraps
		}
		if n < 0 {
			continue // limiters refuse it before it comes here
		}
		if asks[1]%2 == 0 { // by a lease, if there is one
			want := m.Take(now, n)
			if yes, _, leased, ok := c.Allow(now, n, r); !ok || yes != want {
				t.Fatalf("%v, n = %d, by a lease %v: %v, want %v", r, n, leased, yes, want)
			}
			continue
		}
		want := m.Take(now, n)
		res, ok := c.take(now, n, r)
		if !ok || res.Allowed != want || res.Remaining != max(m.Room(now), 0) || res.Limit != r.Limit() || res.ResetAfter < 0 {
			t.Fatalf("%v, n = %d: %+v, want %v and %d", r, n, res, want, max(m.Room(now), 0))
		}
		switch wait := int64(res.RetryAfter); {
		case res.Allowed && wait != 0, n > r.Limit() != (res.RetryAfter == limit.Never):
			t.Fatalf("%v, n = %d: %+v", r, n, res)
		case res.Allowed || n > r.Limit() || now+wait < now:
		case !m.Fits(now+wait, n) || m.Fits(now+wait-1, n):
			t.Fatalf("%v, n = %d: %+v, but then: %v, and a ns earlier: %v", r, n, res, m.Fits(now+wait, n), m.Fits(now+wait-1, n))
		}
		if wait := int64(res.RetryAfter); !want && n <= r.Limit() && asks[1]%3 == 0 && wait < math.MaxInt64/2-now {
			for _, step := range []int64{wait - 1, 1} { // refused until then, and admitted then
				now += step
				if yes, _, _, _ := c.Allow(now, n, r); yes != m.Take(now, n) {
					t.Fatalf("%v, n = %d after a wait of %d: %v", r, n, wait, yes)
				}
			}
			continue
		}
		if back := now + int64(res.ResetAfter); back >= now && m.Room(back) != r.Limit() {
			t.Fatalf("%v: %+v, but then %d are left", r, res, m.Room(back))
		}
	}
	if ok, _, _ := c.allow(math.MaxInt64-1, r.Limit(), r); !ok {
		t.Fatalf("%v: refused at the end of time", r)
	}
}
