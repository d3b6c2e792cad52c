// Package settle books what a call has really cost, once that is known, for the middlewares of all
// protocols.
package settle

import (
	"context"
	"fmt"
	"sync"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Book makes the units that q has taken as many as the call has cost, also if the call's context has
// ended: the limiter must bound its time by itself. With an error that wraps [limit.ErrInvalidN], of a negative cost, nothing is booked.
func Book(ctx context.Context, lim limit.ContextLimiter, q *limit.Check, cost int64) (err error) {
	ctx = context.WithoutCancel(ctx)
	switch {
	case cost < 0:
		return fmt.Errorf("what Settle returned: %w: %d", limit.ErrInvalidN, cost)
	case cost > q.N:
		_, err = lim.Charge(ctx, q.Key, q.Rule, cost-q.N)
	case cost < q.N:
		_, err = lim.Refund(ctx, q.Key, q.Rule, q.N-cost)
	}
	return err
}

// Meter adds up what is counted while a call is served. It is safe for concurrent use.
type Meter struct {
	outer *Meter // of a call around this one; nil if there is none

	mu    sync.Mutex // protects all below
	units int64
	late  func(units int64) // hears what is counted after the end; nil before
}

type meterKey struct{}

// Within returns a context whose calls of [Count] a new meter hears, beside those that hear ctx.
func Within(ctx context.Context) (context.Context, *Meter) {
	m := new(Meter)
	m.outer, _ = ctx.Value(meterKey{}).(*Meter)
	return context.WithValue(ctx, meterKey{}, m), m
}

// Count adds units to all meters that ctx is within. Those that have ended say that they do not
// count them.
func Count(ctx context.Context, n int64) {
	for m, _ := ctx.Value(meterKey{}).(*Meter); m != nil; m = m.outer {
		if late := m.add(n); late != nil {
			late(n)
		}
	}
}

func (m *Meter) add(n int64) (late func(int64)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.late == nil {
		m.units += n
	}
	return m.late
}

// End returns the sum. After that late is called with what is counted and belongs to it no more, by
// several goroutines at once if they count at once.
func (m *Meter) End(late func(error)) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late = func(n int64) {
		late(fmt.Errorf("%d units were counted after the call had ended: they are not booked", n))
	}
	return m.units
}
