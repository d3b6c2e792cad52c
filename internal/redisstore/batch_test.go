package redisstore

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/report"
)

// Faults 26, 56: a batch above the bound is not sent.
func TestInvalidBatches(t *testing.T) {
	b := onMini(t)
	x := newBookings(t, b)
	bad := []*Batch{
		nil,
		{Node: "n1", Seq: 1, Shard: 1},
		{Node: "n1", Seq: 1, Shard: -1},
		{Node: "", Seq: 1},
		{Node: "a}b", Seq: 1},
		{Node: "n1", Seq: 0},
		{Node: "n1", Seq: 1, Prev: 1},
		{Node: "n1", Seq: math.MaxInt64},
		{Node: "n1", Seq: 1, Ops: make([]report.Report, MaxOps+1)},
		{Node: "n1", Seq: 1, Ops: []report.Report{{Key: x.fk}}},
		{Node: "n1", Seq: 1, Ops: []report.Report{{Key: "elsewhere", Rule: x.funnel}}},
		{Node: "n1", Seq: 1, Ops: []report.Report{{Key: x.fk, Rule: slidingLog(t, 1, time.Second)}}},
	}
	good := x.batch(1, 0, 1)
	for i, o := range execAll(x.s, append(bad, good)) {
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
		now := b.now()
		list := func(units int) string { return fmt.Sprintf("%d:%d:0", now/60_000_000, units) }
		rules := "f 1000/1000000 7200000 1000000 0\nw 60000000 2 7200000\n"
		base := map[string]string{"f": "f1 2 2000000 0 2000000 0", "w": "w1 2 " + list(2)}
		raise := map[string]string{"f": ";r 7 7 9000000 0", "w": ";r 7 7 " + list(9)}
		back := map[string]string{"f": ";b 4000000 0 7 9000000 0", "w": ";b 7 " + list(4)}
		ask := func(kind, name, groups string) string {
			keys := []string{"{" + name + "}ledger", "{" + name + "}key", "{" + name + "}other"}
			other := map[string]string{"f": "w", "w": "f"}[kind] // is not to be harmed
			ops := base[kind] + groups + "\n" + base[other] + "\n"
			reply, err := b.rdb.Eval(ctx, scriptBatch.source, keys, "1", "0", "1", "60000", "00", "4", rules, ops).Text()
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(reply, "\n")
			if len(lines) != 3 || strings.HasPrefix(lines[2], "e") {
				t.Fatalf("%q", reply)
			}
			return lines[1]
		}
		for _, kind := range []string{"f", "w"} {
			one := ask(kind, kind+"1", raise[kind]+back[kind])
			two := ask(kind, kind+"2", back[kind]+raise[kind])
			for i, state := range []string{one, two} {
				// 9 raised, 4 handed back, 2 booked. A funnel leaks meanwhile.
				var gen, born, us, rem int64
				if n, _ := fmt.Sscanf(state, "f %d %d %d %d", &gen, &born, &us, &rem); n == 4 && us-b.now() <= 7_000_000 && us-now > 6_000_000 {
					state = "7:0"
				}
				if !strings.HasSuffix(state, "7:0") {
					t.Errorf("%s, order %d: %v", kind, i, state)
				}
			}
			for i, bad := range []string{";x", ";r", ";r 7", ";b", ";b x", ";base 1 2 3 4 5", ";", raise[kind] + ";", raise[kind] + " 7", " 7x", "x"} {
				if state := ask(kind, fmt.Sprint(kind, "bad", i), bad); !strings.HasPrefix(state, "e ") {
					t.Errorf("%s, %q: %v", kind, bad, state)
				}
			}
		}
	})
}
