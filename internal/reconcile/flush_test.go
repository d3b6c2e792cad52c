package reconcile

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A counter waits when a flush begins, and becomes urgent before it is sent: the flush waits for the
// flight that carries it, by whichever of its two places it was taken.
func TestFlushWaitsForWhatBecomesUrgent(t *testing.T) {
	rule := limit.Must(limit.TokenBucket("rule", 5, time.Hour, 5))
	c := awake(t, 1, 1)
	k := counter.New("k", rule, 0, &counter.Group{Link: c.link}, c.local)
	if ok, _, _ := k.Check(c.local, 1, rule); !ok {
		t.Fatal("refused")
	}
	s := &c.shards[0]
	c.link.Drain(func(*counter.Counter, bool) {})
	s.normal, s.normalAt = []queued{{k, c.now}}, c.now
	c.flushes = append(c.flushes, flush{id: 7, at: c.now})
	later := c.now + int64(time.Millisecond)
	s.urgent.put(k, k.Urgency(), later, 0, false)
	s.urgentAt = later
	sent := false
	for _, e := range c.Step(later, later, Tick{}) {
		switch e.(type) {
		case Send:
			sent = true
		case Flushed:
			t.Error("a flush has ended before its units were booked")
		}
	}
	if !sent || len(s.flight.items) != 1 || len(c.flushes) != 1 {
		t.Errorf("sent: %v, %d flushes", sent, len(c.flushes))
	}
}
