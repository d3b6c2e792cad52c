package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// five returns a rule of each kind, for 5 units per minute.
func five() []*limit.Rule {
	return []*limit.Rule{
		limit.Must(limit.TokenBucket("bucket", 5, time.Minute, 5)),
		limit.Must(limit.SlidingWindow("sliding", 5, time.Minute)),
		limit.Must(limit.FixedWindow("fixed", 5, time.Minute)),
	}
}

// inBubbleOnEachKind runs a test in a bubble for a rule of each kind.
func inBubbleOnEachKind(t *testing.T, test func(t *testing.T, w *world, rule *limit.Rule)) {
	t.Helper()
	for _, rule := range five() {
		t.Run(rule.Name(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) { test(t, w, rule) })
		})
	}
}

// useUp takes all units of a key at n, and gives it the time to report them, and the others the
// time to hear that none is left: the 1 ms that an urgent report waits for others, twice, and some.
func (n *node) useUp(t *testing.T, key string, rule *limit.Rule) {
	t.Helper()
	if got, _ := n.TakeAtMost(key, rule, rule.Limit()); got != rule.Limit() {
		t.Fatalf("%d units admitted, want %d", got, rule.Limit())
	}
	time.Sleep(5 * time.Millisecond)
	synctest.Wait()
}

// wantNotice checks a refusal that rests on a notice.
func wantNotice(t testing.TB, what string, res limit.Result) {
	t.Helper()
	if res.Allowed || res.Source != limit.SourceNotice || res.Remaining != 0 || res.RetryAfter <= 0 || res.ResetAfter < res.RetryAfter {
		t.Errorf("%s: %+v, want a refusal by notice", what, res)
	}
}

// A key is used up at one node: the other refuses it from then on, in each kind of check, with and
// without a counter, and says when one unit fits.
//
// Fault 89: what a notice says is obeyed in all kinds of checks, and no longer than it says.
func TestNoticeRefusesAtOnce(t *testing.T) {
	inBubbleOnEachKind(t, func(t *testing.T, w *world, rule *limit.Rule) {
		nodes := w.fleet(2, hybrid.Options{})
		a, b := nodes[0], nodes[1]
		if res := b.Take("seen", rule, 1); !res.Allowed { // one key of which b has a counter
			t.Fatalf("%+v", res)
		}
		time.Sleep(2 * time.Second)
		begun := time.Now()
		a.useUp(t, "new", rule)
		for a.Allow("seen", rule) { // the first is decided without knowing of that of b
			time.Sleep(5 * time.Millisecond)
		}
		b.net.set(func(n *network) { n.lag = time.Millisecond }) // no answer comes between the checks
		for _, key := range []string{"new", "seen"} {
			asked := func(what string) string { return key + ", " + what }
			res := b.Peek(key, rule)
			if res.Remaining != 0 || res.ResetAfter <= 0 { // it asks for 0 units
				t.Errorf("%s: %+v", asked("Peek"), res)
			}
			wantNotice(t, asked("Take"), b.Take(key, rule, 1))
			wantNotice(t, asked("Take of 3"), b.Take(key, rule, 3))
			if b.Allow(key, rule) || b.AllowN(key, rule, 2) {
				t.Errorf("%s: admitted", asked("Allow"))
			}
			granted, res := b.TakeAtMost(key, rule, 2)
			if wantNotice(t, asked("TakeAtMost"), res); granted != 0 {
				t.Errorf("%s: granted %d", asked("TakeAtMost"), granted)
			}
			all := b.TakeAll(limit.Check{Key: "other", Rule: rule}, limit.Check{Key: key, Rule: rule})
			if wantNotice(t, asked("TakeAll"), all.Result); all.By != 1 {
				t.Errorf("%s: decided by check %d", asked("TakeAll"), all.By)
			}
			if res := b.Take(key, rule, 0); !res.Allowed || res.Remaining != 0 {
				t.Errorf("%s: %+v, want it allowed", asked("0 units"), res)
			}
		}
		if s := b.Figures(); s.NoticesHeard < 2 || s.Denied.Notice < 8 || s.AdmittedUnits != 1 {
			t.Errorf("%+v", s)
		}
		fits := b.Take("new", rule, 1).RetryAfter + time.Since(begun)
		if want := 12 * time.Second; rule.Name() == "bucket" && (fits < want || fits > want+time.Microsecond) { // times are told in µs
			t.Errorf("one unit fits %v after they were taken, want %v", fits, want)
		}
		time.Sleep(fits - time.Since(begun) - 10*time.Millisecond)
		if b.Allow("new", rule) {
			t.Error("admitted before the notice ends")
		}
		time.Sleep(20 * time.Millisecond)
		if !b.Allow("new", rule) {
			t.Error("refused after the notice has ended")
		}
	})
}

// What makes room is told, too, and ends the refusals of the other node.
//
// Fault 90: a key that was used up is reset, set, or refunded.
func TestNoticeOfRoom(t *testing.T) {
	ways := map[string]func(w *world, a *node, rule *limit.Rule) error{
		"reset": func(_ *world, a *node, rule *limit.Rule) error { return a.Reset(bg, "k", rule) },
		"reset by a new node, which ends": func(w *world, _ *node, rule *limit.Rule) error {
			n := w.node(hybrid.Options{}, nil) // it does not know the channel yet
			return errors.Join(n.Reset(bg, "k", rule), n.Shutdown(bg))
		},
		"set": func(_ *world, a *node, rule *limit.Rule) error { return a.Set(bg, "k", rule, 3) },
		"refund": func(_ *world, a *node, rule *limit.Rule) error {
			if got := a.Refund("k", rule, 2); got != 2 {
				return fmt.Errorf("%d units are refunded", got)
			}
			return nil
		},
	}
	for name, way := range ways {
		lost := name == "reset by a new node, which ends" // its notice may be
		for _, asked := range []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Hour} {
			if lost && asked == time.Hour {
				continue
			}
			t.Run(fmt.Sprintf("%s, asked each %v", name, asked), func(t *testing.T) {
				inBubbleOnEachKind(t, func(t *testing.T, w *world, rule *limit.Rule) {
					nodes := w.fleet(2, hybrid.Options{})
					a, b := nodes[0], nodes[1]
					a.useUp(t, "k", rule)
					ask := func(d time.Duration) bool {
						for begun := time.Now(); time.Since(begun) < d; time.Sleep(min(asked, d-time.Since(begun))) {
							if b.Allow("k", rule) {
								return true
							}
						}
						return b.Allow("k", rule)
					}
					if ask(3 * time.Second) { // so that b knows it from Redis as well
						t.Fatal("admitted")
					}
					if err := way(w, a, rule); err != nil {
						t.Fatal(err)
					}
					// A refund waits for the next collection at a. b asks for the key at its own
					// next one, and both exchanges take no time here.
					within := 2*100*time.Millisecond + 20*time.Millisecond
					if lost {
						within += 5 * time.Second // of the next check
					}
					if !ask(within) {
						t.Errorf("still refused %v later: %+v", within, b.Take("k", rule, 1))
					}
				})
			})
		}
	}
}

// A notice is a hint: what a caller waits for, or reserves, rests on what Redis says.
//
// Fault 89: only checks obey notices.
func TestNoticeAndWaiters(t *testing.T) {
	inBubbleOnEachKind(t, func(t *testing.T, w *world, rule *limit.Rule) {
		nodes := w.fleet(2, hybrid.Options{})
		a, b := nodes[0], nodes[1]
		a.useUp(t, "waited for", rule)
		a.useUp(t, "reserved", rule)
		b.net.set(func(n *network) { n.lag = time.Millisecond }) // no answer comes between the calls
		for _, key := range []string{"waited for", "reserved"} { // b has not asked Redis for them yet
			wantNotice(t, key, b.Take(key, rule, 1))
		}
		ctx, cancel := context.WithTimeout(bg, time.Second) // the notice says 12 s at least
		defer cancel()
		if err := b.Wait(ctx, "waited for", rule); err != nil {
			t.Errorf("Wait: %v", err)
		}
		if r := b.Reserve("reserved", rule); !r.OK() || r.Delay() != 0 {
			t.Errorf("Reserve: %v, in %v", r.OK(), r.Delay())
		}
	})
}

// A notice that was told before a reset arrives late, twice, and once more.
//
// Fault 90: older notices do not count.
func TestOldNoticesDoNotCount(t *testing.T) {
	inBubbleOnEachKind(t, func(t *testing.T, w *world, rule *limit.Rule) {
		nodes := w.fleet(3, hybrid.Options{})
		a, b, c := nodes[0], nodes[1], nodes[2]
		id, err := w.admin.Get(bg, keyspace().ChannelKey()).Result()
		if err != nil {
			t.Fatal(err)
		}
		told := w.admin.Subscribe(bg, keyspace().NoticeChannel(id))
		defer told.Close()
		time.Sleep(5 * time.Millisecond)
		a.useUp(t, "k", rule)
		late, err := told.ReceiveMessage(bg)
		if err != nil {
			t.Fatal(err)
		}
		wantNotice(t, "before", b.Take("k", rule, 1))
		time.Sleep(200 * time.Millisecond) // until Redis has said so, too
		if err := a.Reset(bg, "k", rule); err != nil {
			t.Fatal(err)
		}
		w.admin.Publish(bg, late.Channel, "\x01garbage")
		for range 2 {
			if err := w.admin.Publish(bg, late.Channel, late.Payload).Err(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond) // b asks Redis
			for name, n := range map[string]*node{"heard both": b, "new key": c} {
				if res := n.Take("k", rule, 1); !res.Allowed || n.Figures().BadReplies != 1 {
					t.Errorf("%s: %+v, %+v", name, res, n.Figures())
				}
			}
		}
	})
}

// In an outage no one can say any more that there is room: a node with FailOpen admits at once, the
// others a lag after they have heard.
//
// Fault 89: an outage while a notice holds.
func TestNoticeInAnOutage(t *testing.T) {
	for policy, bound := range map[hybrid.Fallback]bool{hybrid.FailOpen: false, hybrid.FairShare: true} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			inBubbleOnEachKind(t, func(t *testing.T, w *world, rule *limit.Rule) {
				// A lag that is longer than it takes to notice the outage.
				nodes := w.fleet(2, hybrid.Options{Fallback: policy, MaxLag: 10 * time.Second})
				a, b := nodes[0], nodes[1]
				for _, n := range nodes {
					n.Allow("known", longWindow)
				}
				a.useUp(t, "k", rule)
				received := time.Now()
				wantNotice(t, "before", b.Take("k", rule, 1))
				b.net.down()
				for b.State().Mode != hybrid.Degraded {
					b.Allow("known", longWindow)
					time.Sleep(10 * time.Millisecond)
				}
				if took := time.Since(received); took > 5*time.Second {
					t.Fatalf("degraded after %v", took)
				}
				if got := b.Allow("k", rule); got == bound {
					t.Errorf("in the outage: admitted %v", got)
				}
				if !bound {
					return
				}
				time.Sleep(9*time.Second - time.Since(received))
				if b.Allow("k", rule) {
					t.Error("admitted before the lag has passed")
				}
				time.Sleep(10*time.Second + 10*time.Millisecond - time.Since(received))
				if !b.Allow("k", rule) { // a share of 5 units for 2 nodes is 2
					t.Errorf("refused after a lag: %+v", b.Take("k", rule, 1))
				}
			})
		})
	}
}

// When one unit fits all nodes may admit it at the same instant. The first to do so reports it at once,
// so that the others hear soon that there is none any more.
//
// Fault 89: all notices end at the same time.
func TestNoticeEnds(t *testing.T) {
	inBubbleOnEachKind(t, noticeEnds)
	// Of so many units a node usually reports one tenth at once.
	inBubble(t, func(t *testing.T, w *world) {
		noticeEnds(t, w, limit.Must(limit.FixedWindow("hundred", 100, time.Minute)))
	})
}

func noticeEnds(t *testing.T, w *world, rule *limit.Rule) {
	const size = 5
	nodes := w.fleet(size, hybrid.Options{})
	nodes[0].useUp(t, "k", rule)
	res := nodes[1].Take("k", rule, 1)
	wantNotice(t, "before", res)
	time.Sleep(res.RetryAfter + 10*time.Millisecond)
	before := w.used("k", rule)
	if !nodes[2].Allow("k", rule) {
		t.Fatal("refused")
	}
	time.Sleep(2 * time.Millisecond)
	if got := w.used("k", rule); got != before+1 {
		t.Errorf("%d units used, then %d: the first was not reported at once", before, got)
	}
	more := 0
	for range 50 {
		time.Sleep(10 * time.Millisecond)
		for _, n := range nodes {
			more += admitted(n.Limiter, "k", rule, 1)
		}
	}
	// What there is, and one unit of each other node that it did not know of.
	if most := int(rule.Limit()-before-1) + size - 1; more > most {
		t.Errorf("%d units more admitted, want %d at most", more, most)
	}
}

// Without notices each node learns it with its own report, and no one says that they are down.
//
// Fault 89: as without notices.
func TestPollOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		nodes := w.fleet(2, hybrid.Options{PollOnly: true})
		a, b := nodes[0], nodes[1]
		for _, rule := range five() {
			a.useUp(t, "k", rule)
			if res := b.Take("k", rule, 1); !res.Allowed || res.Source != limit.SourceUnsynced {
				t.Errorf("%v: %+v", rule, res)
			}
		}
		time.Sleep(10 * time.Second)
		for _, n := range nodes {
			if s, st := n.State(), n.Figures(); s.NoticesDown != "" || s.Mode != hybrid.Synced || st.NoticesSent+st.NoticesHeard+st.NoticesLate != 0 {
				t.Errorf("%+v, %+v", s, st)
			}
		}
		if n := w.redis.PubSubChannels("*"); len(n) != 0 {
			t.Errorf("%v are subscribed to", n)
		}
	})
}

// A node hears notices again when it reports again. Its subscription is made anew at once, not after a pause
// that has grown to 2.5 to 5 s: after 3 heartbeats the node would say that notices are down.
func TestHearsAfterAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log logbook
		n := w.synced(hybrid.Options{Logger: slog.New(&log), HeartbeatInterval: 250 * time.Millisecond})
		for range 10 {
			n.net.down()
			time.Sleep(time.Minute)
			wantMode(t, n.Limiter, hybrid.Degraded)
			n.net.up()
			time.Sleep(10 * time.Second)
			wantMode(t, n.Limiter, hybrid.Synced)
		}
		if strings.Contains(log.text(), "notices-down") {
			t.Errorf("log:\n%s", log.text())
		}
	})
}

// Very many keys are used up at the same time. Redis delivers no more messages than the budget says, what is
// kept back is counted, and all else goes on. Of the large fleet only two nodes are real; the others are only
// listed, so that each message counts as many deliveries.
//
// Fault 92: very many keys are used up at once.
func TestNoticesWithinTheBudget(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const fleet, keys, perSecond = 200, 500, 20_000 / 200
		nodes := w.fleet(2, hybrid.Options{})
		a, b := nodes[0], nodes[1]
		for i := range fleet - len(nodes) {
			w.admin.ZAdd(bg, keyspace().NodesKey(), redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMicro()), Member: fmt.Sprint("listed-", i)})
		}
		id, err := w.admin.Get(bg, keyspace().ChannelKey()).Result()
		if err != nil {
			t.Fatal(err)
		}
		told := w.admin.Subscribe(bg, keyspace().NoticeChannel(id))
		var messages atomic.Int64
		go func() {
			for _, err := told.ReceiveMessage(bg); err == nil; _, err = told.ReceiveMessage(bg) {
				messages.Add(1)
			}
		}()
		defer told.Close()
		time.Sleep(5 * time.Second)
		if n := a.State().Nodes; n != fleet {
			t.Fatalf("%d nodes", n)
		}
		once := limit.Must(limit.SlidingWindow("once", 1, time.Hour))
		for i := range keys { // each is told by itself
			if !a.Allow(fmt.Sprint(i), once) {
				t.Errorf("%d is refused", i)
			}
			time.Sleep(2 * time.Millisecond)
		}
		// The seconds' worth of a burst, and of what has passed.
		if got := messages.Load(); got > 2*perSecond+1 || got < perSecond {
			t.Errorf("%d messages to %d nodes in a second", got, fleet)
		}
		time.Sleep(10 * time.Second)
		if late := a.Figures().NoticesLate; late == 0 {
			t.Error("no notice is counted as late")
		}
		if res := b.Take("0", once, 1); res.Allowed {
			t.Errorf("%+v", res)
		}
		for i, n := range nodes {
			if s := n.Figures(); s.StateChanges != 1 || n.State().NoticesDown != "" {
				t.Errorf("node %d: %+v, %+v", i, n.State(), s)
			}
		}
	})
}
