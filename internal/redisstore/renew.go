package redisstore

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Renewed is a counter that has been reset or set, or of which units were refunded.
type Renewed struct {
	// Now is Redis' time at which that was done, since the Unix epoch.
	Now time.Duration
	// State is the counter after that; after a refund only its generation.
	State report.State
}

// Renew sets the count to used units, whatever was counted before. It publishes nothing.
func (s *Store) Renew(ctx context.Context, key string, rule *limit.Rule, used int64) (out Renewed, err error) {
	r, err := s.change(ctx, change{scriptRenew, key, rule, used, nil})
	if err != nil {
		return out, err
	}
	out.Now, out.State.Gen = r.now(), r.number(maxExact)
	out.State.Born = int64(out.Now / time.Microsecond)
	switch kindOf(rule) {
	case "f":
		out.State.Level = r.span(rule)
	case "w":
		out.State.Buckets = r.buckets(rule)
	}
	return out, r.end()
}

// Booking says when units were booked, and the level of the leaky bucket just after that.
type Booking struct {
	At    time.Duration // Redis' time since the Unix epoch
	Level arith.Span
}

// Refund subtracts n units, at most as many as count, and only those of a booking unless that is
// nil. It returns by how many fewer count now, and publishes nothing.
func (s *Store) Refund(ctx context.Context, key string, rule *limit.Rule, n int64, of *Booking) (back int64, out Renewed, err error) {
	r, err := s.change(ctx, change{scriptRefund, key, rule, n, of})
	if err != nil {
		return 0, out, err
	}
	out.Now, out.State.Gen = r.now(), r.number(maxExact)
	kind := kindOf(rule)
	if kind == "f" {
		back = min(n, arith.Of(rule).WholeUp(r.span(rule)))
	} else {
		back = min(n, r.number(arith.MaxUnits))
	}
	if kind == "w" {
		oldest, last, passed := r.number(arith.MaxUnits), 1000*r.number(maxExact), 1000*r.number(maxExact)
		still := func(units int64) int64 { return units - arith.Of(rule).Gone(units, last, passed) }
		back += still(oldest) - still(oldest-min(n-back, oldest))
	}
	return back, out, r.end()
}

// change is what one of the scripts that lower or set a counter is asked for.
type change struct {
	script *script
	key    string
	rule   *limit.Rule
	units  int64
	of     *Booking // nil: of any
}

// change runs the script.
func (s *Store) change(ctx context.Context, q change) (r *reader, err error) {
	if err := decision.Askable(q.rule, q.units); err != nil {
		return nil, Wrap(err)
	}
	for range 2 {
		c := s.changeCall(q)
		s.do(ctx, c)
		r = c.reply()
		if !r.flag() {
			r.fail("it was not done")
		}
		if !s.otherPeriod(r.err) {
			break
		}
	}
	return r, r.err
}

// changeCall builds the call of the script.
func (s *Store) changeCall(q change) *call {
	c := &call{script: q.script, keys: []string{s.keys.CounterKey(q.rule, q.key)}}
	is, kind, units := arith.Of(q.rule), kindOf(q.rule), min(q.units, arith.MaxUnits)
	if kind == "f" {
		c.args = []any{kind, rateText(q.rule), 0, horizonMS(q.rule)}
		c.span(q.rule, is.Cost(units))
		c.span(q.rule, is.Full)
	} else {
		if kind == "l" && q.script == scriptRenew {
			units = min(units, q.rule.Limit())
		}
		c.args = []any{kind, s.width(q.rule), is.Kept, horizonMS(q.rule), units, 0, 0, 0}
	}
	if q.of != nil {
		at := int64(q.of.At / time.Microsecond)
		until := toWire(q.rule, q.of.Level)
		c.args = append(c.args, at, min(at+until.us, maxExact), until.rem)
	}
	return c
}
