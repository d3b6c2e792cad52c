package main

import (
	"strings"
	"testing"
)

// What is wanted is judged less what the load itself takes, and by the worst where any counts.
func TestCostTargets(t *testing.T) {
	const far = "/5000/2000/1/far 1 "
	lines := func(list ...string) string { return "BenchmarkCost/" + strings.Join(list, "\nBenchmarkCost/") }
	for _, c := range []struct{ phrase, raw, want string }{
		{"5,000 checks/s, 2,000 keys: `hybrid` ÷", lines("nothing"+far+"10 client-us/check 1 redis-us/check", "hybrid"+far+"13 client-us/check 3 redis-us/check", "redis_rate"+far+"90 client-us/check 21 redis-us/check"), "5.00 % pass"},
		{"Redis alone", lines("nothing"+far+"1 redis-us/check", "hybrid"+far+"3 redis-us/check", "redis_rate"+far+"51 redis-us/check"), "4.00 % **fail**"},
		{"5,000 checks/s, 2,000 keys: `hybrid` ÷", lines("nothing"+far+"1 client-us/check 1 redis-us/check", "hybrid"+far+"2 client-us/check 3 redis-us/check"), "not measured"},
		{"50,000 checks/s", lines("hybrid/50000/20000/1/far 1 1 client-us/check 0.5 redis-us/check", "hybrid/50000/20000/1/far 1 1 client-us/check 0.5 redis-us/check", "hybrid/50000/20000/1/far 1 4 client-us/check 0.5 redis-us/check"), "1.50 µs 1.50 (1.50 to 4.50) pass"},
		{"keys per script call", lines("hybrid" + far + "490 keys/s 10 calls/s"), "49.0 keys **fail**"},
		{"idle", lines("hybrid/0/20000/1/idle 1 12 commands/s"), "12.0 commands/s pass"},
		{"`hybrid` ÷ `memorystore`", lines("hybrid/0/65536/1/flatout 1 500 checks/s", "memorystore/0/65536/1/flatout 1 750 checks/s"), "1.50 × **fail**"},
		{"failed", lines("hybrid"+far+"0 failed", "hybrid"+far+"0 failed", "hybrid"+far+"1 failed", "hybrid/0/65536/1/flatout 1 2 failed"), "3.00 exchanges **fail**"},
		{"failed", lines("hybrid" + far + "0 failed"), "0 exchanges pass"},
	} {
		r := newRecorded()
		r.cost = mustParse(t, "procs: 1\n"+c.raw)
		if got := verdictAmong(t, costTargets(), c.phrase, r); got != c.want {
			t.Errorf("%q of %q: %s, want %s", c.phrase, c.raw, got, c.want)
		}
	}
}

// What was made of 5 µs for a key and 100 µs for a call is told apart again, but not from
// loads that all have the same number of keys in a call.
func TestFit(t *testing.T) {
	load := func(keys, calls float64) takes { return takes{keys: keys, calls: calls, us: 5*keys + 100*calls} }
	list := []takes{load(1000, 10), load(300, 200), load(8000, 45)}
	if key, call, off, ok := fit(list); !ok || key < 4.999 || key > 5.001 || call < 99.99 || call > 100.01 || off > 1e-6 {
		t.Errorf("%v µs a key, %v a call, off by %v, %v", key, call, off, ok)
	}
	if _, _, _, ok := fit(list[:2]); ok {
		t.Error("two loads fit anything")
	}
	if _, _, _, ok := fit([]takes{load(1000, 10), load(2000, 20), load(300, 3)}); ok {
		t.Error("keys and calls that go together are told apart")
	}
}
