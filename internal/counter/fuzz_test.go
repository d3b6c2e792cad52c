package counter

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// FuzzCounter plays any sequence of questions, reports, answers and clock
// steps on a counter that is shared, and checks that units are conserved, that
// results make sense and that nothing panics.
//
// Fault 44: units are conserved whatever the numbers and the clock.
func FuzzCounter(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 250, 251, 252, 253, 254, 255}, int64(10), int64(3), int64(time.Second), uint8(0))
	f.Add([]byte("the quick brown fox jumps over the lazy dog"), int64(arith.MaxUnits), int64(arith.MaxUnits), int64(time.Hour), uint8(1))
	rng := rand.New(rand.NewPCG(9, 0))
	for kind := range uint8(200) {
		ops := make([]byte, 600)
		for i := range ops {
			ops[i] = byte(rng.Uint32())
		}
		f.Add(ops, int64(2000), 1+rng.Int64N(2000), int64(time.Second)*(1+rng.Int64N(60)), kind)
	}
	f.Fuzz(func(t *testing.T, ops []byte, capacity, units, per int64, kind uint8) {
		var r *limit.Rule
		var err error
		switch kind % 4 {
		case 0:
			r, err = limit.TokenBucket("f", units, time.Duration(per), capacity)
		case 1:
			r, err = limit.SlidingWindowBuckets("w", capacity, time.Duration(per), int(kind)%20+1)
		case 2:
			r, err = anyQuota(capacity, per)
		default:
			r, err = limit.FixedWindow("x", capacity, time.Duration(per))
		}
		if err != nil {
			t.Skip()
		}
		play(t, r, ops)
	})
}

func play(t *testing.T, r *limit.Rule, ops []byte) {
	link := NewLink(pace(time.Second), 4, shardOne)
	now, admitted, booked, sent := int64(1e18), int64(0), int64(0), int64(-1)
	c := NewAlone("k", r, link, now)
	for len(ops) >= 3 {
		op, x := ops[0], int64(binary.LittleEndian.Uint16(ops[1:]))
		ops = ops[3:]
		switch op % 8 {
		case 0, 1, 2:
			n := x % 1000
			if op%8 == 2 {
				n = max(r.Limit()/(x+1), 0)
			}
			res, ok := c.Take(now, n, r)
			if !ok || res.Remaining < 0 || res.Remaining > r.Limit() || res.RetryAfter < 0 || res.ResetAfter < 0 || res.Allowed == (res.RetryAfter > 0) {
				t.Fatalf("%v, n=%d: %+v", r, n, res)
			}
			if res.Allowed {
				admitted += n
			}
		case 3:
			now += x * int64(r.Period()) / 1000 / 64
		case 4:
			now -= x * 1000
		case 5:
			if rep, ok := c.collect(now, Queue(x%2)); ok {
				if sent = rep.Units; c.resend(now+x, x%3 == 0).Units != sent {
					t.Fatalf("%v: %d units are sent, and then others", r, sent)
				}
			}
		case 6:
			if sent < 0 {
				continue
			}
			a := report.Answer{Rule: r, At: now, ServerNow: now + x, State: report.State{Gen: x % 3, Level: arith.Of(r).Cost(x % 100)}}
			if arith.Of(r).Algorithm != arith.TokenBucket {
				a.Level = arith.Span{}
				a.Buckets = []report.Bucket{{ID: (now + x) / int64(arith.Of(r).Width), Units: x}, {ID: x, Units: -x}, {ID: -x, Units: 1 << 62}}
			}
			c.Settle(now, a)
			booked, sent = booked+sent, -1
		case 7:
			link.SetMode(x%5-1, x%2 == 0)
			if sent >= 0 && x%3 == 0 {
				c.Quarantine(now, false)
				sent = -1
			}
		}
		if got := booked + c.Unsynced() + link.Expired.Load(); got != admitted && admitted < algorithm.MaxUnits/2 {
			t.Fatalf("%v: %d units admitted, %d booked + %d unsynced + %d expired", r, admitted, booked, c.Unsynced(), link.Expired.Load())
		}
	}
}
