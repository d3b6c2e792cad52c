package hybrid_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote/redistest"
)

// 400 windows of 1,000 buckets with units in many of them take Redis longer than the
// time-out, if they are told at once: they are told in parts, none of which times out.
//
// Fault 75.
func TestRealWideWindows(t *testing.T) {
	srv := redistest.Start(t)
	const keys, buckets, rounds = 400, 1000, 60
	// The buckets are so short that each round of checks has some of its own.
	rule := limit.Must(limit.SlidingWindowBuckets("wide", 1_000_000, 20*time.Second, buckets))
	fleet := realFleet(t, srv.Addr(), 2, hybrid.Options{})
	for round := range rounds {
		for i := range keys {
			fleet[round%2].Allow(fmt.Sprint("key", i), rule)
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, l := range fleet {
		flush(t, l)
		s := l.Stats()
		if s.Failures > 0 || s.StateChanges > 1 || s.AckedUnits != s.AdmittedUnits || s.AckedUnits != keys*rounds/2 {
			t.Errorf("%v", s)
		}
		conserved(t, l, true)
	}
}
