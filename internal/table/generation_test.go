package table

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A node sets a window before it has heard of its authority's clock, and so goes by what
// the answer shows of that. If it is lost it is told again, in the bucket that it is in.
func TestSetByAnUnknownClockIsToldAgain(t *testing.T) {
	const ahead = int64(5 * time.Second)
	rule := limit.Must(limit.SlidingWindow("w", 100, 10*time.Second))
	link := newTestLink()
	table := newTable(t, Options{Link: link})
	now := int64(table.clock.Now())
	set := report.Bucket{ID: (now + ahead) / int64(arith.Of(rule).Width), Units: 80}
	table.Renew("k", rule, now, report.Answer{State: report.State{Gen: 7, Born: 7, Buckets: []report.Bucket{set}}, At: now, ServerNow: now + ahead})
	link.Part(1).SetOffset(ahead, 1)
	reported := 0
	link.Drain(func(k *counter.Counter, urgent bool) {
		reported++
		rep, ok := collect(k, now, queueOf(urgent))
		if !ok || !rep.Restore || len(rep.Known.Buckets) != 1 || rep.Known.Buckets[0].ID != set.ID || rep.Known.Buckets[0].Units != set.Units {
			t.Errorf("tells %+v again (%v, %v), want %+v", rep.Known.Buckets, ok, rep.Restore, set)
		}
	})
	if reported != 1 {
		t.Errorf("%d counters reported", reported)
	}
}

// A counter that was made by a reset stays for as long as views from before it could
// matter, whatever else comes; after that it goes like any other.
func TestWitnessOfAResetStays(t *testing.T) {
	link := newTestLink()
	table := newTable(t, Options{MaxKeys: 256, Link: link})
	rule := limit.Must(limit.SlidingWindow("w", 100, time.Hour))
	now := int64(table.clock.Now())
	table.Renew("k", rule, now, report.Answer{State: report.State{Gen: 7, Born: 7}, At: now, ServerNow: now})
	witness := func() *counter.Counter {
		h, print := table.hashOf("k", rule)
		sh := table.index.shard(h)
		sh.mu.Lock()
		defer sh.mu.Unlock()
		return sh.findLocked(h, print, "k", rule)
	}
	c := witness()
	if c == nil {
		t.Fatal("the reset made no counter")
	}
	settled := func() {
		link.Drain(func(k *counter.Counter, urgent bool) {
			if rep, ok := collect(k, now, queueOf(urgent)); ok {
				if k == c && !rep.Restore {
					t.Error("the reset is not reported")
				}
				k.Settle(now, report.Answer{Rule: rule, Restored: rep.Restore, State: report.State{Gen: rep.Known.Gen, Born: rep.Known.Born, Buckets: rep.Buckets}, At: now, ServerNow: now, Slack: 1})
			}
		})
	}
	settled()
	for i := range 20 {
		flood(table, rule, fmt.Sprint("junk", i), 1000)
		settle(t, table)
		settled()
	}
	if witness() != c {
		t.Fatal("the witness was dropped")
	}
	if w := c.Retention(now + int64(arith.Of(rule).Horizon()) - 1); w != counter.Kept {
		t.Errorf("worth %v shortly before it may go", w)
	}
	if w := c.Retention(now + int64(arith.Of(rule).Horizon())); w != counter.Idle {
		t.Errorf("worth %v when it may go", w)
	}
}
