package settle

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// books says what was booked.
type books struct {
	limit.ContextLimiter
	did string
}

func (b *books) Refund(ctx context.Context, key string, _ *limit.Rule, n int64) (int64, error) {
	b.did = fmt.Sprint("refund ", key, " ", n)
	return 0, ctx.Err()
}

func (b *books) Charge(ctx context.Context, key string, _ *limit.Rule, n int64) (int64, error) {
	b.did = fmt.Sprint("charge ", key, " ", n)
	return 0, ctx.Err()
}

// The difference is booked, also when the context has ended. No numbers overflow.
func TestBook(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		taken, cost int64
		did         string
		err         error
	}{
		{10, 12, "charge k 2", nil}, {10, 7, "refund k 3", nil}, {10, 10, "", nil}, {10, 0, "refund k 10", nil},
		{1, math.MaxInt64, fmt.Sprint("charge k ", int64(math.MaxInt64-1)), nil}, {math.MaxInt64, 0, fmt.Sprint("refund k ", int64(math.MaxInt64)), nil},
		{10, -1, "", limit.ErrInvalidN}, {10, math.MinInt64, "", limit.ErrInvalidN},
	} {
		b := new(books)
		err := Book(ended, b, &limit.Check{Key: "k", N: c.taken}, c.cost)
		if b.did != c.did || !errors.Is(err, c.err) {
			t.Errorf("%d of %d: %q, %v", c.cost, c.taken, b.did, err)
		}
	}
}

func TestMeter(t *testing.T) {
	Count(t.Context(), 1) // nobody hears it
	outer, all := Within(t.Context())
	inner, some := Within(outer)
	other, _ := Within(outer)
	var both sync.WaitGroup
	for range 100 {
		both.Go(func() { Count(inner, 2); Count(outer, 1); Count(other, -1) })
	}
	both.Wait()
	var late []string
	note := func(err error) { late = append(late, err.Error()) }
	if n := some.End(note); n != 200 {
		t.Errorf("%d of some", n)
	}
	Count(inner, 3)
	if n := all.End(note); n != 203 || fmt.Sprint(late) != "[3 units were counted after the call had ended: they are not booked]" {
		t.Errorf("%d in all, %q", n, late)
	}
}

// What is counted is in the sum, or is said to be late: never both, and never neither.
func TestMeterEndsWhileOthersCount(t *testing.T) {
	for range 100 {
		ctx, m := Within(t.Context())
		var counting sync.WaitGroup
		for range 4 {
			counting.Go(func() {
				for range 10 {
					Count(ctx, 1)
				}
			})
		}
		var late atomic.Int64
		sum := m.End(func(error) { late.Add(1) })
		counting.Wait()
		if sum+late.Load() != 40 {
			t.Fatalf("%d in the sum and %d late, of 40", sum, late.Load())
		}
	}
}
