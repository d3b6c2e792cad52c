package remote

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
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
		{Node: "n1", Seq: 1, Ops: []Op{{Key: x.fk, Rule: x.funnel, Raise: true, Known: State{Level: limit.Span{Rem: -1}}}}},
		{Node: "n1", Seq: 1, Ops: []Op{{Key: x.fk, Rule: x.funnel, Raise: true, Known: State{Gen: -1}}}},
		{Node: "n1", Seq: 1, Ops: []Op{{Key: x.fk, Rule: x.funnel, Raise: true, Known: State{Born: maxExact + 1}}}},
		{Node: "n1", Seq: 1, Ops: []Op{{Key: x.wk, Rule: x.window, Units: 1, Buckets: []Bucket{{ID: 1, Units: 2}}}}},
		{Node: "n1", Seq: 1, Ops: []Op{{Key: x.wk, Rule: x.window, Buckets: []Bucket{{ID: -1, Units: 0}}}}},
		{Node: "n1", Seq: 1, Ops: []Op{{Key: x.wk, Rule: x.window, Units: 0, Buckets: []Bucket{{ID: 1, Units: 1}, {ID: 2, Units: -1}}}}},
		{Node: "n1", Seq: 1, Ops: []Op{{Key: x.wk, Rule: x.window, Raise: true, Known: State{Buckets: []Bucket{{ID: 1, Units: -1}}}}}},
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

// The groups of an operation count the same in any order. One that is unknown or
// incomplete fails its own key alone.
func TestGroupsOfAnOperation(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		head := []any{"1", "0", "1", "60000", "00"}
		minute := int64(60_000_000)
		list := func(units int) string { return fmt.Sprintf(" %d:%d:0", b.now()/minute, units) }
		base := map[string][]any{
			"f": {2, "1000/1000000", 2_000_000, 0, 2_000_000, 0, 7_200_000},
			"w": {2, minute, 2, 7_200_000, list(2)},
		}
		raise := map[string][]any{"f": {"r", 7, 7, 9_000_000, 0}, "w": {"r", 7, 7, list(9)}}
		back := map[string][]any{"f": {"b", 4_000_000, 0, 7, 9_000_000, 0}, "w": {"b", list(4), 7}}
		ask := func(kind, name string, groups ...any) []any {
			fields := append(slices.Clone(base[kind]), groups...)
			args := append(append(slices.Clone(head), kind, len(fields)), fields...)
			keys := []string{"{" + name + "}ledger", "{" + name + "}key"}
			reply, err := b.rdb.Eval(ctx, scriptBatch.source, keys, args...).Slice()
			if err != nil {
				t.Fatal(err)
			}
			return reply[4:]
		}
		for _, kind := range []string{"f", "w"} {
			one := ask(kind, kind+"1", append(slices.Clone(raise[kind]), back[kind]...)...)
			two := ask(kind, kind+"2", append(slices.Clone(back[kind]), raise[kind]...)...)
			for i, state := range [][]any{one, two} {
				// 9 raised, 4 handed back, 2 booked. A funnel leaks meanwhile.
				text := fmt.Sprint(state[3:])
				if us, ok := state[3].(int64); ok && us > 6_000_000 && us <= 7_000_000 {
					text = "7"
				}
				if !strings.HasSuffix(strings.TrimSuffix(strings.Trim(text, "[] "), ":0"), "7") {
					t.Errorf("%s, order %d: %v", kind, i, state)
				}
			}
			for i, bad := range [][]any{{"x"}, {"r"}, raise[kind][:3], {"b", "1"}, {"base", 1, 2, 3, 4, 5, 6, 7}} {
				if state := ask(kind, fmt.Sprint(kind, "bad", i), bad...); state[0] != "e" {
					t.Errorf("%s, %v: %v", kind, bad, state)
				}
			}
		}
	})
}
