package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
)

// used returns a notice of a key that is used up for so many seconds; 0: there is room.
func (c *Machine) used(key string, seconds int64) report.Notice {
	n := report.Notice{ID: redisstore.NoticeIDOf(key), Now: time.Duration(c.local + c.shards[0].server.offset.ns)}
	if seconds > 0 {
		n.Until = n.Now + time.Duration(seconds)*time.Second
	}
	return n
}

// told returns what is told in the effects of a step.
func told(effects []Effect) (id uint64, list []report.Notice) {
	for _, e := range effects {
		switch e := e.(type) {
		case Publish:
			return e.ID, e.Notices
		case Send:
			if len(e.Notices) > 0 {
				return e.ID, e.Notices
			}
		}
	}
	return 0, nil
}

// That there is room is told first, then the longest waits; of one key the latest. One message
// is under way at a time, and carries all that has come meanwhile.
func TestOrderOfAnnouncements(t *testing.T) {
	c := awake(t, 1, 10)
	c.announce(c.used("a", 10))
	c.announce(c.used("b", 30))
	c.announce(c.used("c", 0))
	c.announce(c.used("a", 20))
	want := []report.Notice{c.used("c", 0), c.used("b", 30), c.used("a", 20)}
	id, list := told(c.Step(c.now, c.local, Tick{}))
	if !slices.Equal(list, want) {
		t.Fatalf("told %+v, want %+v", list, want)
	}
	c.announce(c.used("d", 10))
	c.announce(c.used("e", 10))
	if _, list = told(c.Step(c.now, c.local, Tick{})); list != nil {
		t.Errorf("told while a message is under way: %+v", list)
	}
	if _, list = told(c.Step(c.now, c.local, Published{ID: id})); len(list) != 2 {
		t.Errorf("then told %+v", list)
	}
}

// Redis delivers no more than maxDeliveries messages a second, counting those of all nodes, and
// one second's worth at once. That there is room does not wait. What waits is bounded.
func TestBudgetOfAnnouncements(t *testing.T) {
	const nodes = 100 // 200 messages a second
	c := awake(t, 1, nodes)
	sent, now := 0, c.now
	step := func(key string, seconds int64) {
		c.announce(c.used(key, seconds))
		if id, list := told(c.Step(now, now, Tick{})); list != nil {
			sent++
			c.Step(now, now, Published{ID: id})
		}
	}
	for i := range 1000 {
		step(fmt.Sprint(i), 60)
	}
	if most := maxDeliveries/nodes + 1; sent > most || sent < most-1 {
		t.Errorf("%d messages at once, want %d", sent, most)
	}
	if late := c.stats.Withheld.Load(); late < 700 {
		t.Errorf("%d of 1000 told late", late)
	}
	before := sent
	if step("room", 0); sent != before+1 {
		t.Error("that there is room waits")
	}
	heard := Received{}
	for range 2000 { // of the other nodes
		heard.Messages = append(heard.Messages, Message{Node: "other"})
	}
	c.Step(now, now, heard)
	sent = 0
	for end := now + int64(900*time.Millisecond); now < end; now += int64(10 * time.Millisecond) {
		step(fmt.Sprint(now), 600)
	}
	if sent > 0 {
		t.Errorf("%d messages while those of others use up the budget", sent)
	}
	for end := now + int64(5*time.Second); now < end; now += int64(10 * time.Millisecond) {
		step(fmt.Sprint(now), 600)
	}
	if most := 4 * maxDeliveries / nodes; sent == 0 || sent > most {
		t.Errorf("%d messages in 5 s, want 1 to %d", sent, most)
	}
	for i := range 2 * maxAnnounced {
		c.announce(c.used(fmt.Sprint("more", i), 60))
	}
	if got := len(c.notices.announced); got > maxAnnounced {
		t.Errorf("%d wait to be told", got)
	}
}

// Messages that nothing bounds, as those that say that there is room, do not silence a node for longer
// than two rounds of messages of all nodes, and not the largest fleet either.
func TestBudgetAfterAFlood(t *testing.T) {
	for _, nodes := range []int64{1, 10, 200, 100_000} {
		c := awake(t, 1, int(nodes))
		now := c.now
		heard := Received{Messages: slices.Repeat([]Message{{Node: "other"}}, 100_000)}
		c.Step(now, now, heard)
		most := now + 2*nodes*(nodes*int64(time.Second)/maxDeliveries)
		if at := c.notices.mayPublishAt(); at < now || at > most {
			t.Errorf("%d nodes: nothing is told for %v, want at most %v", nodes, time.Duration(at-now), time.Duration(most-now))
		}
		c.announce(c.used("k", 60))
		c.Step(c.notices.mayPublishAt(), now, Tick{})
		if at := c.notices.publishAt; at != 0 && at < c.now {
			t.Errorf("%d nodes: the next is told %v ago", nodes, time.Duration(c.now-at))
		}
	}
}

// Nothing is told by a node that may not publish, or while its shards cannot be reached. A
// heartbeat says when it may again.
func TestMutedAnnouncements(t *testing.T) {
	c := awake(t, 1, 2)
	denied := notAllowed{}
	c.announce(c.used("a", 10))
	id, _ := told(c.Step(c.now, c.local, Tick{}))
	c.Step(c.now, c.local, Published{ID: id, Err: denied})
	if c.announce(c.used("b", 10)); len(c.notices.announced) != 0 {
		t.Error("announced although it cannot be told")
	}
	c.noteChannel(redisstore.Beat{Channel: c.notices.channel, EchoErr: denied})
	if c.noticesDown != "noperm" {
		t.Errorf("notices down: %q", c.noticesDown)
	}
	c.noteChannel(redisstore.Beat{Channel: c.notices.channel})
	if c.noticesDown != "" {
		t.Errorf("notices down: %q", c.noticesDown)
	}
	if c.announce(c.used("c", 10)); len(c.notices.announced) != 1 {
		t.Error("not announced although it can be told")
	}
	c.setHealth(c.shards[0].server, down)
	if _, list := told(c.Step(c.now, c.local, Tick{})); list != nil || len(c.notices.announced) != 0 {
		t.Errorf("told %+v in an outage", list)
	}
}

// A subscription whose echo is not heard twice in a row is made anew, and after some heartbeats
// the node says that notices are down. The first echo that is heard ends that.
func TestEchoes(t *testing.T) {
	c := awake(t, 1, 2)
	beat := redisstore.Beat{Channel: c.notices.channel}
	listens := 0
	for range noticesDownAfter + echoesMissed + 2 {
		c.notices.beatsWith()
		c.now += c.cfg.HeartbeatInterval
		c.out = nil
		c.noteChannel(beat)
		for _, e := range c.out {
			if e, ok := e.(Listen); ok && e.Channel == beat.Channel {
				listens++
			}
		}
	}
	if listens != 1 || c.notices.receives() || c.noticesDown == "" {
		t.Errorf("subscribed %d times, hears: %v, notices down: %q", listens, c.notices.receives(), c.noticesDown)
	}
	c.Step(c.now, c.local, Received{Confirmed: true, Echo: c.notices.echo})
	if !c.notices.receives() || c.noticesDown != "" {
		t.Errorf("notices down: %q", c.noticesDown)
	}
}

// A node of a Cluster says that notices are down while any key could have notices, whatever master is away. While
// no key could it says nothing: the node is cut off.
//
// Fault 108: masters are away, and the subscription does not work.
func TestNoticesDownInACluster(t *testing.T) {
	for away, want := range map[string]string{"": "silent", "server0": "silent", "server1": "silent", "server0 and server1": ""} {
		c := awake(t, 2, 2)
		c.cfg.Channel = "cluster"
		c.Place([]string{"server0", "server1"})
		for i := range c.shards {
			if v := c.shards[i].server; strings.Contains(away, v.name) {
				c.setHealth(v, down)
			}
		}
		for range noticesDownAfter + echoesMissed + 2 {
			c.notices.beatsWith()
			c.now += c.cfg.HeartbeatInterval
			c.noteChannel(redisstore.Beat{})
		}
		if c.noticesDown != want {
			t.Errorf("%q away: notices down: %q, want %q", away, c.noticesDown, want)
		}
	}
}

// While a shard cannot be reached nothing is heard of its keys: nobody could say that there is
// room again.
func TestNothingIsHeardInAnOutage(t *testing.T) {
	c := awake(t, 1, 2)
	hear := func(key string) (kept int) {
		c.Step(c.now, c.local, Received{Messages: []Message{{Node: "other", Notices: []report.Notice{c.used(key, 10)}}}})
		return c.link.Kept()
	}
	if kept := hear("a"); kept != 1 {
		t.Fatalf("%d kept, want 1", kept)
	}
	c.setHealth(c.shards[0].server, down)
	if kept := hear("b"); kept != 1 {
		t.Errorf("%d kept, want 1", kept)
	}
}

// notAllowed is what Redis says to whom it does not allow a command.
type notAllowed struct{}

func (notAllowed) Error() string { return "NOPERM no permission" }
func (notAllowed) RedisError()   {}
