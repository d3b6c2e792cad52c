package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

const ms = time.Millisecond

// even returns a record of so many slots, each alike.
func even(slots int, offered, admitted int64) record {
	return record{slices.Repeat([]int64{offered}, slots), slices.Repeat([]int64{admitted}, slots)}
}

// calm returns circumstances that are alike in all slots.
func calm(slots int, c circumstance) []circumstance { return slices.Repeat([]circumstance{c}, slots) }

// 10 checks a slot of each node, limit 1000 per second: what is promised by hand, in each
// circumstance. A node alone has nobody to be ignorant of.
func TestBoundsByHand(t *testing.T) {
	rule := limit.Must(limit.SlidingWindow("r", 1000, time.Second))
	const base = 1000 + 100 // the limit, one bucket's share of it; and a unit for each node
	for _, c := range []struct {
		name  string
		nodes int
		circ  circumstance
		want  int64
	}{
		{"one node", 1, circumstance{age: 120 * ms}, base + 1},
		{"alone", 3, circumstance{alone: true, age: 120 * ms}, base + 3},
		// S+δ of 120 ms: 13 slots, 130 checks, twice, of two nodes.
		{"connected", 3, circumstance{age: 120 * ms}, base + 3 + 2*2*130},
		{"returning", 3, circumstance{returning: true, age: 120 * ms}, base + 3 + 2*(2*130+333)},
		{"blind", 3, circumstance{blind: true, age: 120 * ms}, base + 3 + 2*1000}, // asked 1000 each: as good as no limit
		{"old views", 3, circumstance{age: 5 * time.Second}, base + 3 + 2*1000},
	} {
		records := slices.Repeat([]record{even(300, 10, 3)}, c.nodes)
		if n, bound := newOracle(rule, records, calm(300, c.circ)).judge(250); n != 300*int64(c.nodes) || bound != c.want {
			t.Errorf("%s: %d admitted of %d, want %d", c.name, n, bound, c.want)
		}
	}
}

func TestOracleFindsExcess(t *testing.T) {
	rule := limit.Must(limit.SlidingWindow("r", 100, 500*ms))
	honest := []record{even(200, 5, 1), even(200, 5, 1)}
	circ := calm(200, circumstance{alone: true, age: 105 * ms})
	if f := newOracle(rule, honest, circ).windows(0, 200); f.broken != 0 || f.admitted != 100 {
		t.Errorf("honest nodes: %+v", f)
	}
	honest[1].admitted[120] += 20
	f := newOracle(rule, honest, circ).windows(0, 200)
	if f.broken == 0 || f.worst != 120 || f.worst <= f.allowed {
		t.Errorf("20 units too many went unnoticed: %+v", f)
	}
	if f := newOracle(rule, honest, circ).windows(0, 120); f.broken != 0 {
		t.Errorf("found before it happened: %+v", f)
	}
}

// Redis' counter and its ledgers are compared, node by node, with what nodes were told; what
// differs is named, and is the exit code.
func TestAccount(t *testing.T) {
	for _, c := range []struct {
		b    books
		want string
	}{
		{books{acked: []int64{3, 1, 2}, ledger: []int64{1, 2, 3}}, ""},
		{books{acked: []int64{3, 1, 2}, ledger: []int64{1, 2, 2}}, "1 units lost, 0 counted twice"},
		{books{acked: []int64{10, 20}, ledger: []int64{12, 17}}, "3 units lost, 2 counted twice"}, // one hides behind the other in the sums
		{books{acked: []int64{4, 0}, ledger: []int64{4}}, ""},
		{books{acked: []int64{4}, ledger: []int64{4, 1}}, "0 units lost, 1 counted twice"}, // a ledger of nobody
		{books{quota: 100, counted: 200}, "quota"},
		{books{quota: 100, counted: 50}, "quota"},
		{books{quota: 100, counted: 50, before: 10}, ""},
		{books{quota: 100, counted: 101, before: 10}, "quota"},
	} {
		r := &report{AdmittedTotal: c.b.before}
		for _, units := range c.b.ledger {
			r.AdmittedTotal += units
		}
		r.account(&c.b)
		r.OK = len(r.Broken) == 0
		var out bytes.Buffer
		code := conclude(r, true, &out, io.Discard, io.Discard)
		if (code == exitBroken) != (c.want != "") || !strings.Contains(strings.Join(strings.Fields(out.String()), " "), c.want) {
			t.Errorf("%+v: exit code %d, %v", c.b, code, r.Broken)
		}
	}
}

// A limiter that refuses everything keeps every upper bound. It is found out.
func TestOracleFindsStarvation(t *testing.T) {
	rule := limit.Must(limit.SlidingWindow("r", 100, 500*ms))
	circ := calm(200, circumstance{alone: true, age: 105 * ms})
	starved := []record{even(200, 5, 0), even(200, 5, 0)}
	if f := newOracle(rule, starved, circ).windows(0, 200); f.starved == 0 || f.least != 0 {
		t.Errorf("nothing admitted of 10 a slot: %+v", f)
	}
	fed := []record{even(200, 5, 1), even(200, 5, 1)}
	if f := newOracle(rule, fed, circ).windows(0, 200); f.starved != 0 {
		t.Errorf("100 admitted of 100: %+v", f)
	}
}
