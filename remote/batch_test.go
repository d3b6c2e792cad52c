package remote

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Faults 26, 56: a batch above the bound is not sent.
func TestInvalidBatches(t *testing.T) {
	b := onMini(t)
	x := newBookings(t, b)
	span := limit.Span{NS: -1}
	bad := []*Batch{
		nil,
		{Node: "n1", Seq: 1, Shard: 1},
		{Node: "n1", Seq: 1, Shard: -1},
		{Node: "", Seq: 1},
		{Node: "a}b", Seq: 1},
		{Node: "n1", Seq: 0},
		{Node: "n1", Seq: 1, Prev: 1},
		{Node: "n1", Seq: math.MaxInt64},
		{Node: "n1", Seq: 1, Ops: make([]Op, MaxOps+1)},
		{Node: "n1", Seq: 1, Ops: []Op{{Key: x.fk}}},
		{Node: "n1", Seq: 1, Ops: []Op{{Key: "elsewhere", Rule: x.funnel}}},
		{Node: "n1", Seq: 1, Ops: []Op{{Key: x.fk, Rule: x.funnel, Units: -1}}},
		{Node: "n1", Seq: 1, Ops: []Op{{Key: x.fk, Rule: x.funnel, Ahead: span}}},
		{Node: "n1", Seq: 1, Ops: []Op{{Key: x.fk, Rule: x.funnel, Raise: true, Known: State{Level: span}}}},
		{Node: "n1", Seq: 1, Ops: []Op{{Key: x.fk, Rule: x.funnel, Raise: true, Known: State{Gen: -1}}}},
		{Node: "n1", Seq: 1, Ops: []Op{{Key: x.wk, Rule: x.window, Units: 1, Buckets: []Bucket{{1, 2}}}}},
		{Node: "n1", Seq: 1, Ops: []Op{{Key: x.wk, Rule: x.window, Buckets: []Bucket{{-1, 0}}}}},
		{Node: "n1", Seq: 1, Ops: []Op{{Key: x.wk, Rule: x.window, Units: 0, Buckets: []Bucket{{1, 1}, {2, -1}}}}},
		{Node: "n1", Seq: 1, Ops: []Op{{Key: x.wk, Rule: x.window, Raise: true, Known: State{Buckets: []Bucket{{1, -1}}}}}},
		{Node: "n1", Seq: 1, Ops: []Op{{Key: x.fk, Rule: slidingLog(t, 1, time.Second)}}},
	}
	good := x.batch(1, 0, 1)
	for i, o := range x.s.Exec(ctx, append(bad, good)) {
		if i == len(bad) {
			if o.Err != nil || o.Reply.Verdict != VerdictApplied {
				t.Errorf("the good batch: %+v", o)
			}
		} else if !errors.Is(o.Err, ErrInvalidBatch) {
			t.Errorf("batch %d: %v", i, o.Err)
		}
	}
}
