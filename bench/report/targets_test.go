package main

import (
	"slices"
	"strings"
	"testing"
)

// newRecorded returns what empty files say.
func newRecorded() recorded {
	return recorded{newResults(), newResults(), newResults(), newResults(), newResults(), newResults()}
}

// None of the targets is met by nothing.
func TestNothingMeasured(t *testing.T) {
	empty := newRecorded()
	for _, want := range slices.Concat(targets(), costTargets(), smallTargets()) {
		if measured, passes, word := want.verdict(empty); word != "not measured" || measured+passes != "" {
			t.Errorf("%s: %s %s %s", want.wants, measured, passes, word)
		}
	}
}

// verdictOf returns what becomes of the target whose text contains a phrase.
func verdictOf(t *testing.T, phrase string, r recorded) string {
	t.Helper()
	return verdictAmong(t, targets(), phrase, r)
}

func verdictAmong(t *testing.T, list []target, phrase string, r recorded) string {
	t.Helper()
	for _, want := range list {
		if strings.Contains(want.wants, phrase) {
			measured, passes, word := want.verdict(r)
			return strings.Join(strings.Fields(measured+" "+passes+" "+word), " ")
		}
	}
	t.Fatalf("no target says %q", phrase)
	return ""
}

func TestTargets(t *testing.T) {
	for _, c := range []struct{ phrase, bench, want string }{
		{"keys, serial: `hybrid` ÷ fastest", "BenchmarkAllow/hybrid/65536/uniform/serial 1 80 ns/op\nBenchmarkAllow/ulule/65536/uniform/serial 1 100 ns/op", "0.80 × pass"},
		{"keys, serial: `hybrid` ÷ fastest", "BenchmarkAllow/hybrid/65536/uniform/serial 1 81 ns/op\nBenchmarkAllow/ulule/65536/uniform/serial 1 100 ns/op", "0.81 × **fail**"},
		// each pass by itself is told, and is not what counts
		{"keys, serial: `hybrid` ÷ fastest", "BenchmarkAllow/hybrid/65536/uniform/serial 1 80 ns/op\nBenchmarkAllow/ulule/65536/uniform/serial 1 100 ns/op\nBenchmarkAllow/hybrid/65536/uniform/serial 1 40 ns/op\nBenchmarkAllow/ulule/65536/uniform/serial 1 20 ns/op\nBenchmarkAllow/hybrid/65536/uniform/serial 1 50 ns/op\nBenchmarkAllow/ulule/65536/uniform/serial 1 90 ns/op", "0.56 × 0.80 (0.56 to 2.00) pass"},
		// neither the floor nor a limiter without keys is a rival
		{"keys, serial: `hybrid` ÷ fastest", "BenchmarkAllow/hybrid/uniform/serial 1 80 ns/op\nBenchmarkAllow/floor/uniform/serial 1 9 ns/op\nBenchmarkAllow/x-single/uniform/serial 1 9 ns/op", "not measured"},
		// nor is one under another load, or in another mode
		{"keys, serial: `hybrid` ÷ fastest", "BenchmarkAllow/hybrid/65536/uniform/serial 1 80 ns/op\nBenchmarkAllow/ulule/65536/zipf/serial 1 100 ns/op\nBenchmarkAllow/ulule/65536/uniform/parallel 1 1 ns/op", "not measured"},
		// a floor goes by the same clock, and learns of keys
		{"÷ `floor`", "BenchmarkAllow/hybrid/uniform/serial 1 130 ns/op\nBenchmarkAllow/floor-array/uniform/serial 1 9 ns/op\nBenchmarkAllow/floor/uniform/serial 1 100 ns/op\nBenchmarkAllow/floor-coarse/uniform/serial 1 90 ns/op", "1.30 × pass"},
		{"÷ `floor-array`", "BenchmarkAllow/hybrid/65536/uniform/serial 1 130 ns/op\nBenchmarkAllow/floor/65536/uniform/serial 1 10 ns/op\nBenchmarkAllow/floor-array/65536/uniform/serial 1 100 ns/op\nBenchmarkAllow/hybrid/1/uniform/serial 1 90 ns/op\nBenchmarkAllow/floor-array/1/uniform/serial 1 10 ns/op", "1.30 × pass"},
		{"refused ÷ allowed", "BenchmarkRefused/hybrid/1/serial 1 50 ns/op\nBenchmarkRefused/hybrid-admits/1/serial 1 50 ns/op\nBenchmarkAllow/hybrid/1/serial 1 10 ns/op", "1.00 × pass"},
		{"÷ `hybrid-synced`", "BenchmarkAllow/hybrid-synced/uniform/serial 1 100 ns/op\nBenchmarkAllow/hybrid/uniform/serial 1 10 ns/op\nBenchmarkAllow/redis-rate/uniform/serial 1 30000 ns/op", "300 × pass"},
		{"`redis-rate` ÷ `hybrid`,", "BenchmarkAllow/hybrid/uniform/serial 1 100 ns/op\nBenchmarkAllow/redis-rate/uniform/serial 1 29900 ns/op", "299 × **fail**"},
		{"allocations", "BenchmarkAllow/hybrid/hot/serial 1 100 ns/op 0 allocs/op\nBenchmarkRefused/local/hot/serial 1 100 ns/op 1 allocs/op", "1.00 allocs **fail**"},
		{"allocations", "BenchmarkAllow/hybrid/hot/serial 1 100 ns/op 0 allocs/op\nBenchmarkAllow/ulule/hot/serial 1 100 ns/op 3 allocs/op", "0 allocs pass"},
		{"allocations", "BenchmarkAllow/hybrid/hot/serial 1 100 ns/op", "not measured"},
		{"p99", "BenchmarkLatency/hybrid-synced/both 1 100 healthy-p99-ns 150 hanging-p99-ns 99 hanging-p50-ns", "1.50 × pass"},
		{"p99", "BenchmarkLatency/hybrid-synced/both 1 150 hanging-p99-ns 5 clock-p99-ns", "not measured"},
		{"Redis CPU", "BenchmarkSync/token-bucket/batch-10 1 90 redis-us/key\nBenchmarkSync/token-bucket/batch-100 1 5 redis-us/key\nBenchmarkSync/token-bucket/batch-500 1 4 redis-us/key", "5.00 µs pass"},
		{"pipeline, token bucket", "BenchmarkSync/token-bucket/batch-100 1 5 redis-us/key", "not measured"},
		{"pipeline, sliding", "BenchmarkSync/sliding-window/batch-100 1 5 redis-us/key\nBenchmarkSync/sliding-window/take 1 8 redis-us/key", "0.62 × **fail**"},
		{"per second, token bucket", "BenchmarkSyncRate/funnel 1 99999 keys/s", "99,999 keys/s **fail**"}, // an older record
		{"per second, token bucket", "BenchmarkSyncRate/token-bucket 1 100000 keys/s", "100,000 keys/s pass"},
	} {
		r := newRecorded()
		r.bench = mustParse(t, "procs: 1\n"+c.bench)
		if got := verdictOf(t, c.phrase, r); got != c.want {
			t.Errorf("%q: %s, want %s", c.bench, got, c.want)
		}
	}
}

// A hundred thousand keys are not a million.
func TestHeapTargets(t *testing.T) {
	r := newRecorded()
	r.memory = mustParse(t, `procs: 1
BenchmarkMemory/local/token-bucket/1000000 1 300 B/key
BenchmarkMemory/hybrid/token-bucket/1048576 1 401 B/key
BenchmarkMemory/hybrid/sliding-window/100000 1 100 B/key
BenchmarkMemory/hybrid-busy/sliding-window/1000000 1 399 B/key
`)
	if got := verdictOf(t, "million, token bucket", r); got != "401 B **fail**" {
		t.Error(got)
	}
	if got := verdictOf(t, "million, sliding window, in one", r); got != "not measured" {
		t.Error(got)
	}
	if got := verdictOf(t, "million, sliding window, in two", r); got != "399 B pass" {
		t.Error(got)
	}
}
