package redisstore

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Whatever a node sends of an outage: what is booked and what is forgiven are what it
// has sent, the level never falls, it stays below the ceiling or where it was, give or
// take a unit, and units that were not admitted in the outage are booked. A batch that
// is sent again is told the same.
func TestForgiven(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		s := b.store()
		rng := rand.New(rand.NewPCG(80, 1))
		for i, rule := range []*limit.Rule{
			funnel(t, 100, 7, 3000*time.Hour), funnel(t, 10, 1, 1000*time.Hour), funnel(t, 1<<40, 1<<40, 1000*time.Hour),
		} {
			key := s.Keyspace().CounterKey(rule, fmt.Sprint("k", i))
			had, all, total, cut := arith.Span{}, arith.Span{}, int64(0), int64(0)
			for seq := int64(1); seq <= 40; seq++ {
				units := 1 + rng.Int64N(rule.Limit())
				op := report.Report{Key: key, Rule: rule, Units: units, Ahead: arith.Of(rule).Cost(units)}
				op.Debt, op.Ceiling = rng.Int64N(units+1), arith.Of(rule).Cost(rng.Int64N(20*rule.Limit()))
				batch := &Batch{Shard: s.Keyspace().Shard(fmt.Sprint("k", i)), Node: fmt.Sprint("n", i), Seq: seq, Prev: seq - 1, Ops: []report.Report{op}}
				total += units
				r := exec(t, s, batch)
				wantReply(t, r, VerdictApplied, total)
				st := r.States[0]
				cut += st.Forgiven
				all = arith.Of(rule).Add(all, arith.Of(rule).Cost(units-st.Forgiven))
				// What has leaked meanwhile is less than slack.
				slack := arith.Span{NS: int64(time.Minute)}
				if arith.Of(rule).Add(st.Level, slack).Less(all) || arith.Of(rule).Add(all, slack).Less(st.Level) {
					t.Fatalf("%v: level %v, but %v were booked", rule, st.Level, all)
				}
				if st.Forgiven > op.Debt || arith.Of(rule).Add(st.Level, slack).Less(had) {
					t.Fatalf("%v: %d of %d forgiven, level %v, was %v", rule, st.Forgiven, op.Debt, st.Level, had)
				}
				top := had.Max(op.Ceiling)
				if st.Forgiven > 0 && arith.Of(rule).Add(st.Level, slack).Less(top) {
					t.Fatalf("%v: %d forgiven although the level is %v, not above %v", rule, st.Forgiven, st.Level, top)
				}
				if over := arith.Of(rule).Sub(st.Level, arith.Of(rule).Add(top, slack)); st.Forgiven < op.Debt && arith.Of(rule).Cost(1).Less(over) {
					t.Fatalf("%v: only %d of %d forgiven, the level is %v, the ceiling %v", rule, st.Forgiven, op.Debt, st.Level, top)
				}
				had = st.Level
				again := exec(t, s, batch)
				wantReply(t, again, VerdictDuplicate, total)
				if got := again.States[0]; got.Forgiven != st.Forgiven || arith.Of(rule).Add(had, slack).Less(got.Level) {
					t.Fatalf("%v: %d forgiven at first, then %d", rule, st.Forgiven, got.Forgiven)
				}
			}
			if cut == 0 || cut == total {
				t.Errorf("%v: %d of %d forgiven", rule, cut, total)
			}
		}
	})
}
