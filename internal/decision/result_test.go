package decision

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// In ticks a leaky bucket decides as it does in spans, whatever its numbers are.
func TestTicksAreExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	counted := 0
	for range 3000 {
		draw := func(bits int) int64 { return rng.Int64N(1<<(1+rng.IntN(bits))) + 1 }
		rule, err := limit.Funnel("r", draw(30), draw(40), time.Duration(draw(45)))
		if err != nil || arith.Of(rule).Ticks == (arith.Ticks{}) {
			continue
		}
		r := arith.Of(rule)
		counted++
		k := r.Ticks
		if sum := new(big.Int).Mul(big.NewInt(k.Most), big.NewInt(k.PerNS)); sum.Add(sum, big.NewInt(2*k.Full+k.One)).Cmp(big.NewInt(math.MaxInt64)) > 0 {
			t.Fatalf("%v: %+v wraps", r, k)
		}
		now := min(draw(60), k.Most/2)
		span, ticks := arith.Span{NS: now}, now*k.PerNS
		for range 50 {
			now = min(now+draw(20), k.Most)
			at := arith.Span{NS: now}
			next, n := r.Add(span.Max(at), r.Cost(1)), max(ticks, now*k.PerNS)+k.One
			fits := !r.Add(at, r.Full).Less(next)
			if got := n <= now*k.PerNS+k.Full; got != fits {
				t.Fatalf("%v at %d: %v in ticks, %v in spans", r, now, got, fits)
			}
			if fits {
				span, ticks = next, n
				if got, want := Ticks(r, ticks-now*k.PerNS), LeakyBucket(r, true, 1, 1, r.Sub(span, at)); got != want {
					t.Fatalf("%v with %d ticks: %+v, want %+v", r, ticks-now*k.PerNS, got, want)
				}
			}
			if got := r.OfTicks(ticks); got != span {
				t.Fatalf("%v: %d ticks are %+v, want %+v", r, ticks, got, span)
			}
			if got, ok := r.ToTicks(span); !ok || got != ticks {
				t.Fatalf("%v: %+v is %d ticks (%v), want %d", r, span, got, ok, ticks)
			}
		}
	}
	r := arith.Of(limit.Must(limit.Funnel("r", 10, 4, 6)))
	if got, want := Ticks(r, 0), LeakyBucket(r, true, 1, 1, arith.Span{}); got != want {
		t.Errorf("empty: %+v, want %+v", got, want)
	}
	if counted < 1000 {
		t.Errorf("%d leaky buckets", counted)
	}
}
