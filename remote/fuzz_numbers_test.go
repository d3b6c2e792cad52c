package remote

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// extremes are numbers at which arithmetic goes wrong, in Lua too.
var extremes = []int64{
	0, 1, 2, 3, 7, 10, 1000, 1 << 31, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1 << 60, math.MaxInt64 - 1, math.MaxInt64,
	-1, -1 << 53, math.MinInt64,
}

// maxLogged bounds the units of a sliding log here, which keeps each of them.
const maxLogged = 100

// modelOf returns a rule of any numbers and its model; nil if they are refused.
func modelOf(kind uint8, capacity, units, per int64, buckets int) (*limit.Rule, model) {
	var r *limit.Rule
	switch kind % 4 {
	case 0:
		if r, _ = limit.TokenBucket("f", units, time.Duration(per), capacity); r == nil || arith.Of(r).Units > 1<<52/1000 {
			return nil, nil // beyond that denominator spans are rounded up
		}
		return r, newExactFunnel(r)
	case 1:
		r, _ = limit.SlidingWindowBuckets("s", capacity, time.Duration(per), buckets)
	case 2:
		r, _ = limit.FixedWindow("x", capacity, time.Duration(per))
	default:
		if r, _ = limit.SlidingLog("l", capacity, time.Duration(per)); r == nil || capacity > maxLogged {
			return nil, nil
		}
		return r, &logModel{limit: capacity, width: arith.Of(r).Width.Microseconds()}
	}
	if r == nil {
		return nil, nil
	}
	return r, newWindowModel(r)
}

// newExactFunnel is newFunnelModel for numbers whose product with 1000 wraps.
func newExactFunnel(r *limit.Rule) *funnelModel {
	m := newFunnelModel(r.Limit(), 1, r.Period())
	m.rate.Mul(m.rate, new(big.Rat).SetInt64(arith.Of(r).Units))
	return m
}

// FuzzNumbers asks Redis for any n, at any time, under a rule of any numbers:
// every answer is that of a model with fractions of any size, and whoever is
// refused succeeds after exactly the wait that was named, and no sooner.
//
// Faults 41, 42, 43, 44, 45, 46, 59: every answer is exact, and nothing wraps.
// CI runs it 5000 times.
func FuzzNumbers(f *testing.F) {
	for kind := range uint8(4) {
		f.Add([]byte{0, 1, 2, 3, 40, 80, 6, 7, 8, 9, 250, 251}, int64(10), int64(3), int64(time.Second), kind, uint16(9))
		f.Add([]byte{9, 0, 9, 200, 9, 255, 8, 3, 10, 7}, int64(1)<<53, int64(1)<<42, int64(arith.MaxWindow), kind, uint16(99))
		f.Add([]byte{8, 9, 1, 2, 1, 255, 1, 254, 1, 200}, int64(1)<<53-1, int64(1), int64(time.Millisecond), kind, uint16(0))
		f.Add([]byte{1, 0, 1, 9, 0, 0, 14, 0, 15, 0, 16, 0}, int64(1), int64(1), int64(arith.MaxWindow), kind, uint16(1))
		f.Add([]byte{1, 0, 0, 9}, int64(0), int64(1), int64(time.Second), kind, uint16(1))
		f.Add([]byte{4, 1, 4, 9, 4, 77, 4, 130}, int64(7), int64(7), int64(3*time.Second), kind, uint16(3))
	}
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(m.Close)
	m.ClockTTL(true)
	rdb := redis.NewClient(options(m.Addr()))
	f.Cleanup(func() { rdb.Close() })
	f.Fuzz(func(t *testing.T, asks []byte, capacity, units, per int64, kind uint8, buckets uint16) {
		r, want := modelOf(kind, capacity, units, per, int(buckets)%100+1)
		if r == nil || len(asks) > 20 {
			t.Skip()
		}
		m.SetTime(epoch)
		m.FlushAll()
		b := &backend{t: t, rdb: rdb, addr: m.Addr(), mini: m, at: epoch}
		b.playNumbers(b.limiter(), r, want, asks)
	})
}

func (b *backend) playNumbers(l *Limiter, r *limit.Rule, m model, asks []byte) {
	b.advance(0)
	for ; len(asks) >= 2; asks = asks[2:] {
		n, step := extremes[int(asks[0])%len(extremes)], time.Duration(0)
		if asks[0] > 200 { // something near the limit
			n = r.Limit() - int64(asks[0]-228)
		}
		if asks[1] < 192 {
			step = arith.Of(r).Horizon() >> (asks[1] % 64)
		}
		if b.at.Year() > 2120 { // its TTLs, and the longest window, still end before Lua's time does
			return
		}
		b.advance(step.Truncate(time.Microsecond))
		if n < 0 {
			if res, err := l.Take(ctx, "k", r, n); err == nil || res.Allowed || res.RetryAfter != limit.Never {
				b.t.Fatalf("%v, n = %d: %s, %v", r, n, show(res), err)
			}
			continue
		}
		b.ask(l, r, m, n, asks[1]%4 == 0)
	}
}
