package main

import (
	"slices"
	"strings"
	"testing"
)

// What becomes of targets. None is met by nothing; that figures are right is seen by the pages, see
// TestRecorded.
func TestTargets(t *testing.T) {
	const hybrid, far = "BenchmarkAllow/hybrid/65536/uniform/serial 1 ", "/5000/2000/1/far 1 "
	for _, c := range []struct{ phrase, raw, want string }{
		{"keys, serial: `hybrid` ÷ fastest", hybrid + "80 ns/op\nBenchmarkAllow/ulule/65536/uniform/serial 1 100 ns/op", "0.80 × pass"},
		// each pass by itself is told, and is not what counts
		{"keys, serial: `hybrid` ÷ fastest", hybrid + "80 ns/op\nBenchmarkAllow/ulule/65536/uniform/serial 1 100 ns/op\n" + hybrid + "40 ns/op\nBenchmarkAllow/ulule/65536/uniform/serial 1 20 ns/op", "1.00 × 1.40 (0.80 to 2.00) **fail**"},
		// rivals have keys, the same load and the same mode
		{"keys, serial: `hybrid` ÷ fastest", hybrid + "80 ns/op\nBenchmarkAllow/floor/65536/uniform/serial 1 9 ns/op\nBenchmarkAllow/x-single/65536/uniform/serial 1 9 ns/op\nBenchmarkAllow/ulule/65536/zipf/serial 1 9 ns/op\nBenchmarkAllow/ulule/65536/uniform/parallel 1 9 ns/op", "not measured"},
		// a floor goes by the same clock, and learns of keys
		{"÷ `floor`", hybrid + "130 ns/op\nBenchmarkAllow/floor-array/65536/uniform/serial 1 9 ns/op\nBenchmarkAllow/floor/65536/uniform/serial 1 100 ns/op\nBenchmarkAllow/floor-coarse/65536/uniform/serial 1 90 ns/op", "1.30 × pass"},
		{"Redis CPU", "BenchmarkSync/funnel/batch-10 1 90 redis-us/key\nBenchmarkSync/funnel/batch-100 1 5.1 redis-us/key", "5.10 µs **fail**"}, // an older record
		{"million, token bucket", "BenchmarkMemory/hybrid/token-bucket/1048576 1 401 B/key\nBenchmarkMemory/local/token-bucket/100000 1 900 B/key", "401 B **fail**"},
		// less what the load itself takes
		{"5,000 checks/s, 2,000 keys: `hybrid` ÷", "BenchmarkCost/nothing" + far + "10 client-us/check 1 redis-us/check\nBenchmarkCost/hybrid" + far + "13 client-us/check 3 redis-us/check\nBenchmarkCost/redis_rate" + far + "90 client-us/check 21 redis-us/check", "5.00 % pass"},
		{"failed", "BenchmarkCost/hybrid" + far + "0 failed\nBenchmarkCost/hybrid" + far + "1 failed\nBenchmarkCost/hybrid/0/65536/1/flatout 1 2 failed", "3.00 exchanges **fail**"},
		{"refused wrongly", "BenchmarkSmall/one/random/bucket/5/4 1 300 units\nBenchmarkSmall/hybrid/random/bucket/5/4 1 298 units 3 missing\nBenchmarkSmall/remote/random/bucket/5/4 1 90 missing", "1.00 % pass"},
	} {
		res, err := parse(strings.NewReader("procs: 1\n" + c.raw))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, want := range slices.Concat(targets(), costTargets(), smallTargets()) {
			measured, passes, word := want.verdict(recorded{res, res, res, res, res, res})
			if strings.Contains(want.wants, c.phrase) && !found {
				found = true
				if got := strings.Join(strings.Fields(measured+" "+passes+" "+word), " "); got != c.want {
					t.Errorf("%q: %s, want %s", c.raw, got, c.want)
				}
			}
			none := newResults()
			if _, _, word := want.verdict(recorded{none, none, none, none, none, none}); word != "not measured" {
				t.Errorf("%s: %s by nothing", want.wants, word)
			}
		}
		if !found {
			t.Errorf("no target says %q", c.phrase)
		}
	}
}
