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
