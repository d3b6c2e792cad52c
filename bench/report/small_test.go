package main

import "testing"

func TestSmallTargets(t *testing.T) {
	const hybrid, one = "BenchmarkSmall/hybrid/", "BenchmarkSmall/one/"
	for _, c := range []struct{ phrase, raw, want string }{
		{"10 nodes, window 5 per 30 s: admitted", hybrid + "random/window/5/10 1 1.06 to-one", "1.06 × pass"},
		{"10 nodes, window 5 per 30 s: fullest", hybrid + "random/window/5/10 1 1.07 fullest-to-one", "1.07 × **fail**"},
		{"4 nodes, window 10 per 30 s: admitted", hybrid + "random/window/10/10 1 1 to-one", "not measured"},
		// the others are not judged, nor is what a fleet admits too much taken off what it refuses
		{"refused wrongly", one + "sticky/window/5/10 1 100 units\n" + hybrid + "sticky/window/5/10 1 500 units 2 missing\n" + one + "random/bucket/5/4 1 300 units\n" + hybrid + "random/bucket/5/4 1 298 units 2 missing\nBenchmarkSmall/remote/random/bucket/5/4 1 90 missing", "1.00 % pass"},
		{"refused wrongly", hybrid + "random/window/5/10 1 0 missing", "not measured"},
		{"until all", hybrid + "random/window/5/10 1 4 heard-p99-ms\n" + hybrid + "random/bucket/60/10 1 6 heard-p99-ms\n" + hybrid + "random/bucket/60/30 1 9 heard-p99-ms", "6.00 ms **fail**"},
		{"within 5 ms", hybrid + "burst-5ms/window/5/10 1 1.6 fullest\n" + hybrid + "burst-100ms/window/5/10 1 1.9 fullest\n" + one + "burst-5ms/window/5/10 1 1.8 fullest", "1.60 × pass"},
	} {
		r := newRecorded()
		r.small = mustParse(t, "procs: 1\n"+c.raw)
		if got := verdictAmong(t, smallTargets(), c.phrase, r); got != c.want {
			t.Errorf("%q of %q: %s, want %s", c.phrase, c.raw, got, c.want)
		}
	}
}
