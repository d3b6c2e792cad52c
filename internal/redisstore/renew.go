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
	r, err := s.renew(ctx, scriptRenew, key, rule, used, nil)
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
	r, err := s.renew(ctx, scriptRefund, key, rule, n, of)
	if err != nil {
		return 0, out, err
	}
	out.Now, out.State.Gen = r.now(), r.number(maxExact)
	switch kindOf(rule) {
	case "f":
		back = min(n, arith.Of(rule).WholeUp(r.span(rule)))
	case "l":
		back = min(n, r.number(limit.MaxUnits))
	default:
		back = min(n, r.number(limit.MaxUnits))
		oldest, last, passed := r.number(limit.MaxUnits), 1000*r.number(maxExact), 1000*r.number(maxExact)
		still := func(units int64) int64 { return units - arith.Of(rule).Gone(units, last, passed) }
		back += still(oldest) - still(oldest-min(n-back, oldest))
	}
	return back, out, r.end()
}

// renew runs one of the scripts that lower or set a counter.
func (s *Store) renew(ctx context.Context, script *script, key string, rule *limit.Rule, units int64, of *Booking) (r *reader, err error) {
	if err := decision.Askable(rule, units); err != nil {
		return nil, Wrap(err)
	}
	for range 2 {
		if r, err = s.renewOnce(ctx, script, key, rule, units, of); !s.otherPeriod(err) {
			break
		}
	}
	return r, err
}

func (s *Store) renewOnce(ctx context.Context, script *script, key string, rule *limit.Rule, units int64, of *Booking) (*reader, error) {
	c := &call{script: script, keys: []string{s.Keyspace().CounterKey(rule, key)}}
	is, kind, units := arith.Of(rule), kindOf(rule), min(units, limit.MaxUnits)
	if kind == "f" {
		c.args = []any{kind, rateText(rule), 0, horizonMS(rule)}
		c.span(rule, is.Cost(units))
		c.span(rule, is.Full)
	} else {
		if kind == "l" && script == scriptRenew {
			units = min(units, rule.Limit())
		}
		c.args = []any{kind, s.width(rule), is.Kept, horizonMS(rule), units, 0, 0, 0}
	}
	if of != nil {
		at := int64(of.At / time.Microsecond)
		until := toWire(rule, of.Level)
		c.args = append(c.args, at, min(at+until.us, maxExact), until.rem)
	}
	s.do(ctx, c)
	r, _ := c.reply()
	if !r.flag() {
		r.fail("it was not done")
	}
	return r, r.err
}
