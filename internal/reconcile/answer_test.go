package reconcile

import (
	"slices"
	"testing"
)

// A flight without an answer within the longest deadline is an outage of its shard, if the server
// answers for others: those need not wait for rounds to add up.
func TestSpentFlightIsAnOutageOfItsShard(t *testing.T) {
	for _, spent := range []bool{false, true} {
		c := awake(t, 4, 1)
		c.exchangeEnded(c.now, []answer{{shard: 2, err: errTimeout, waits: !spent, spent: spent}, {shard: 0}}, c.booked)
		if is := c.shards[2].server.health == down; is != spent || c.shards[0].server.health != up {
			t.Errorf("spent %v: shard 2 is down: %v, shard 0 is on %+v", spent, is, c.shards[0].server)
		}
	}
}

// That a server answers for others does not make up for a shard for which it does not.
func TestAnswersForOthers(t *testing.T) {
	c := awake(t, 4, 1)
	for range apartAfter * c.cfg.DegradeAfter {
		if c.shards[2].server.health != up {
			t.Fatal("too soon")
		}
		c.exchangeEnded(c.now, []answer{{shard: 2, err: errTimeout}, {shard: 0}}, c.booked)
	}
	if a, b := c.shards[2].server, c.shards[0].server; !slices.Equal(a.shards, []int{2}) || !slices.Equal(b.shards, []int{0, 1, 3}) {
		t.Errorf("shards are grouped as %v and %v", a.shards, b.shards)
	}
	if c.shards[2].server.health != down || c.shards[0].server.health != up {
		t.Errorf("shard 2 is on %+v, shard 0 on %+v", c.shards[2].server, c.shards[0].server)
	}
}

// An answered heartbeat makes up for flights that had no answer in time, and for no other failure: a
// server may answer heartbeats and refuse batches.
func TestHeartbeatsExcuseOnlyWhatIsLate(t *testing.T) {
	c := awake(t, 1, 1)
	c.shards[0].flight = &flight{}
	v := c.servers[0]
	v.rounds.fails = 1
	if c.reached(v); v.rounds.fails != 1 {
		t.Error("a flight that failed at once is forgotten")
	}
	c.shards[0].flight.late = 1
	if c.reached(v); v.rounds.fails != 0 {
		t.Error("a flight that is only late still counts")
	}
}
