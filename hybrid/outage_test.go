package hybrid_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Fault 1: a limiter made without Redis decides by itself and goes on looking for it.
func TestRefusedAtStart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		net := new(network)
		net.down()
		var log logbook
		n := w.node(hybrid.Options{Logger: slog.New(&log), MaxBackoff: 5 * time.Second}, net)
		wantAdmitted(t, n.Limiter, "k", longTen, 20, 10) // before anything is known
		time.Sleep(time.Second)
		wantMode(t, n.Limiter, hybrid.Degraded)
		if s := n.State(); s.Reason != "refused" || !errors.Is(s.Err, syscall.ECONNREFUSED) {
			t.Errorf("state %v, %v: want the reason refused and the error itself", s, s.Err)
		}
		if res := n.Take("k", longTen, 1); res.Allowed || res.Source != limit.SourceDegraded {
			t.Errorf("%+v, want a refusal by a degraded limiter", res)
		}
		// Probes back off: the first minute sees a few at the start and then
		// one in 2.6 s on average (5 s with full jitter).
		time.Sleep(time.Minute)
		if got := n.Figures().Heartbeats; got < 12 || got > 60 {
			t.Errorf("%d probes in the first minute", got)
		}
		before := n.Figures().Heartbeats
		time.Sleep(time.Minute)
		if got := n.Figures().Heartbeats - before; got < 12 || got > 48 {
			t.Errorf("%d probes in the second minute, want about 23", got)
		}
		net.up()
		time.Sleep(6 * time.Second) // the longest pause, and a moment
		wantMode(t, n.Limiter, hybrid.Synced)
		w.wantTotal("k", longTen, 10)
		conserved(t, n.Limiter, true)
		if warn, all := log.count(slog.LevelWarn); warn != 1 || all > 4 {
			t.Errorf("log:\n%s", log.text())
		}
	})
}

// Faults 2, 65: the fallback begins after the second failure; ten minutes are one warning and two that
// repeat it.
func TestRefusedMidRun(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log logbook
		n := w.synced(hybrid.Options{Logger: slog.New(&log)})
		wantAdmitted(t, n.Limiter, "k", hundred, 20, 20)
		time.Sleep(time.Second)
		w.wantUsed("k", hundred, 20)

		n.net.down()
		wantAdmitted(t, n.Limiter, "k", hundred, 1, 1)
		for range 100 { // 10 ms steps: until the second failure, not the first
			if n.Figures().Failures > 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if f := n.Figures().Failures; f == 1 {
			wantMode(t, n.Limiter, hybrid.Synced)
		}
		time.Sleep(2 * time.Second)
		wantMode(t, n.Limiter, hybrid.Degraded)
		// Alone it keeps the whole limit: 21 used.
		wantAdmitted(t, n.Limiter, "k", hundred, 200, 79)
		// Ten minutes of outage under load: a line every five minutes, no growth.
		for range 600 {
			time.Sleep(time.Second)
			n.Allow("k", hundred)
		}
		if warn, all := log.count(slog.LevelWarn); warn != 3 || all > 4 || strings.Count(log.text(), "checks=") != 2 {
			t.Errorf("after 10 min of outage:\n%s", log.text())
		}
		n.net.up()
		time.Sleep(6 * time.Second)
		wantMode(t, n.Limiter, hybrid.Synced)
		w.wantTotal("k", hundred, 100)
		conserved(t, n.Limiter, true)
		if warn, _ := log.count(slog.LevelWarn); warn != 3 { // it hears notices again as soon as it reports again
			t.Errorf("log:\n%s", log.text())
		}
	})
}

// The limit may be reached only once failures have come in a row: a single
// lost connection must not degrade anybody.
//
// Faults 2, 6: one lost exchange changes nothing that anybody sees.
func TestOneFailureDoesNotDegrade(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var seen changes
		n := w.synced(hybrid.Options{OnStateChange: seen.add})
		for range 20 {
			n.net.set(func(n *network) { n.drop = 1 })
			n.Allow("k", longWindow)
			time.Sleep(time.Second)
		}
		if s := n.Figures(); s.Failures < 20 {
			t.Fatalf("%d failures: the fault was not injected", s.Failures)
		}
		if got := seen.modes(); !slices.Equal(got, []hybrid.Mode{hybrid.Synced}) {
			t.Errorf("modes %v, want synced once and for all", got)
		}
		w.wantUsed("k", longWindow, 20)
	})
}

// Fault 3: a dial that is never answered ends at the deadline, and there is one at a time.
func TestDialBlackHole(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		net := &network{hang: true}
		// go-redis lets a dial go on when its caller has given up: without a
		// DialTimeout each probe of 5 s leaves one behind.
		rdb := w.client(net, func(o *redis.Options) { o.DialTimeout = 200 * time.Millisecond })
		n := &node{newLimiter(t, rdb, hybrid.Options{CommandTimeout: 200 * time.Millisecond}), net, rdb}
		begun := time.Now()
		err := n.Flush(bg)
		var unavailable *hybrid.UnavailableError
		if took := time.Since(begun); !errors.As(err, &unavailable) || unavailable.Reason != "timeout" || took > 300*time.Millisecond {
			t.Errorf("flush: %v after %v, want a timeout after 200 ms", err, took)
		}
		wantMode(t, n.Limiter, hybrid.Degraded)
		time.Sleep(time.Minute)
		if got := net.traffic(); got.peak != 1 || got.dials < 12 {
			t.Errorf("%d dials at a time and %d in all, want 1, and about 23", got.peak, got.dials)
		}
		net.up()
		time.Sleep(6 * time.Second)
		wantMode(t, n.Limiter, hybrid.Synced)
	})
}

// A client that does not keep deadlines must not pile up calls.
//
// Fault 4: calls that overrun their deadline do not pile up.
func TestClientIgnoresDeadlines(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		net := new(network)
		rdb := w.client(net, func(o *redis.Options) {
			o.ContextTimeoutEnabled = false
			o.ReadTimeout = 20 * time.Second
			o.MaxRetries = -1
		})
		l := newLimiter(t, rdb, hybrid.Options{})
		time.Sleep(10 * time.Millisecond)
		wantMode(t, l, hybrid.Synced)
		net.set(func(n *network) { n.swallow = true })
		for i := range 100 {
			l.Allow(string(rune('a'+i%26)), longWindow)
			time.Sleep(100 * time.Millisecond)
		}
		wantMode(t, l, hybrid.Degraded)
		if d := net.traffic().dials; d > 6 { // at most four pipelines and a heartbeat hang
			t.Errorf("%d connections for a hanging Redis", d)
		}
		net.up()
		net.sever() // their replies would not match
		time.Sleep(30 * time.Second)
		wantMode(t, l, hybrid.Synced)
		conserved(t, l, true)
		if got := l.Figures().BookedUnits; got != 100 {
			t.Errorf("%d units booked, want 100", got)
		}
	})
}

// A server that reads and never answers: the call ends at its deadline, and
// its batch is unknown, not failed. Here it has in fact never arrived; the
// other case is in TestBatchLost.
//
// Fault 4: what was sent into silence stays pending, and is sent again.
func TestReadBlackHole(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		wantAdmitted(t, n.Limiter, "k", longWindow, 5, 5)
		time.Sleep(time.Second)
		n.net.set(func(n *network) { n.swallow = true })
		wantAdmitted(t, n.Limiter, "k", longWindow, 7, 7)
		begun := time.Now()
		if err := n.Flush(bg); err == nil {
			t.Error("a flush into a black hole succeeded")
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("the flush took %v", took)
		}
		if s := n.Figures(); s.PendingUnits != 7 || s.BookedUnits != 5 {
			t.Errorf("acked %d, pending %d, want 5 and 7", s.BookedUnits, s.PendingUnits)
		}
		wantAdmitted(t, n.Limiter, "k", longWindow, 3, 3)
		n.net.up()
		time.Sleep(6 * time.Second)
		w.wantUsed("k", longWindow, 15)
		conserved(t, n.Limiter, true)
		if n.Figures().ResentBatches == 0 {
			t.Error("no batch was sent again")
		}
	})
}

// Flapping: up for a second, down for a second. What is admitted is booked
// all the same, and neither the log nor the probes run wild.
//
// Fault 11: changes of state, probes and dials stay bounded.
func TestFlappingLink(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log logbook
		n := w.synced(hybrid.Options{Logger: slog.New(&log)})
		const cycles = 300 // ten minutes
		before := n.Figures()
		for range cycles {
			n.net.up()
			admitted(n.Limiter, "k", longWindow, 10)
			time.Sleep(time.Second)
			n.net.down()
			admitted(n.Limiter, "k", longWindow, 10)
			time.Sleep(time.Second)
		}
		s := n.Figures()
		if got := s.StateChanges - before.StateChanges; got > 3*cycles || got < cycles/10 {
			t.Errorf("%d changes of state in %d cycles", got, cycles)
		}
		// A heartbeat and a few probes: a cycle of 2 s has room for no more.
		if got := s.Heartbeats - before.Heartbeats; got > 12*cycles {
			t.Errorf("%d heartbeats and probes in %d cycles", got, cycles)
		}
		n.net.up()
		time.Sleep(10 * time.Second)
		wantMode(t, n.Limiter, hybrid.Synced)
		w.wantUsed("k", longWindow, 20*cycles)
		conserved(t, n.Limiter, true)
		if warn, all := log.count(slog.LevelWarn); warn > cycles || all > 3*cycles+1 {
			t.Errorf("%d warnings, %d lines in %d cycles", warn, all, cycles)
		}
		if d := n.net.traffic().dials; d > 30*cycles {
			t.Errorf("%d dials in %d cycles", d, cycles)
		}
	})
}

// An outage of more than two windows: what was admitted in a window that is
// over is dropped and counted, and never lands in a newer window.
//
// Fault 13: units of a window that is over are dropped and counted.
func TestOutageLongerThanWindow(t *testing.T) {
	for _, rule := range []*limit.Rule{
		limit.Must(limit.SlidingWindow("s", 10, 10*time.Second)),
		limit.Must(limit.FixedWindow("x", 10, 10*time.Second)),
	} {
		t.Run(arith.Of(rule).Algorithm.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				n := w.synced(hybrid.Options{})
				wantAdmitted(t, n.Limiter, "k", rule, 4, 4)
				time.Sleep(time.Second)
				n.net.down()
				time.Sleep(2 * time.Second)
				wantMode(t, n.Limiter, hybrid.Degraded)
				total := 4 + admitted(n.Limiter, "k", rule, 20)
				if total != 10 {
					t.Fatalf("%d admitted in the first window, want 10", total)
				}
				for range 4 {
					time.Sleep(12 * time.Second) // any window is over
					got := admitted(n.Limiter, "k", rule, 20)
					if got != 10 {
						t.Fatalf("%d admitted in a later window, want 10", got)
					}
					total += got
				}
				time.Sleep(12 * time.Second)
				n.net.up()
				time.Sleep(6 * time.Second)
				wantMode(t, n.Limiter, hybrid.Synced)
				conserved(t, n.Limiter, true)
				if s := n.Figures(); s.ExpiredUnits != int64(total-4) {
					t.Errorf("%d units expired, want %d: %+v", s.ExpiredUnits, total-4, s)
				}
				w.wantUsed("k", rule, 0)
				wantAdmitted(t, n.Limiter, "k", rule, 20, 10)
			})
		})
	}
}

// What Redis says instead of an answer.
//
// Faults 20, 22, 23, 24, 25, 26: each word of Redis degrades with its reason, once, without a hot loop.
func TestErrorReplies(t *testing.T) {
	for _, c := range []struct{ text, reason string }{
		{"LOADING Redis is loading the dataset in memory", "loading"},
		{"CLUSTERDOWN The cluster is down", "clusterdown"},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", "masterdown"},
		{"READONLY You can't write against a read only replica.", "readonly"},
		{"OOM command not allowed when used memory > 'maxmemory'.", "oom"},
		{"NOREPLICAS Not enough good replicas to write.", "noreplicas"},
		{"BUSY Redis is busy running a script.", "busy"},
		{"NOAUTH Authentication required.", "noauth"},
		{"NOPERM this user has no permissions to run the 'evalsha' command", "noperm"},
		{"ERR something unheard of", "error"},
	} {
		t.Run(c.reason, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				var log logbook
				n := w.synced(hybrid.Options{Logger: slog.New(&log)})
				wantAdmitted(t, n.Limiter, "k", longTen, 2, 2)
				time.Sleep(time.Second)
				w.redis.SetError(c.text)
				time.Sleep(3 * time.Second)
				if s := n.State(); s.Mode != hybrid.Degraded || s.Reason != c.reason || s.Err == nil {
					t.Fatalf("state %v (%v), want degraded: %s", s, s.Err, c.reason)
				}
				wantAdmitted(t, n.Limiter, "k", longTen, 20, 8)
				sent := n.net.traffic().sent
				time.Sleep(time.Minute)
				// Probes only, and they have backed off: about 57, of one or two messages.
				if got := n.net.traffic().sent - sent; got > 180 {
					t.Errorf("%d messages in a minute: a hot loop", got)
				}
				if warn := log.alarms(); warn != 1 || !strings.Contains(log.text(), c.reason) {
					t.Errorf("log:\n%s", log.text())
				}
				w.redis.SetError("")
				time.Sleep(7 * time.Second)
				wantMode(t, n.Limiter, hybrid.Synced)
				w.wantTotal("k", longTen, 10)
				conserved(t, n.Limiter, true)
			})
		})
	}
}

// What an operator has to mend degrades at the first refusal, and is not asked
// for at the pace of what may pass by itself.
//
// Fault 25: what an operator must mend is asked for slowly.
func TestMisconfiguredProbesSlowly(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		pauses := func(text string) (first time.Duration) {
			n := w.synced(hybrid.Options{MaxBackoff: 5 * time.Second})
			w.redis.SetError(text)
			for n.State().Mode != hybrid.Degraded {
				time.Sleep(time.Millisecond)
			}
			fails, begun := n.Figures().Failures, time.Now()
			for n.Figures().Failures == fails {
				time.Sleep(time.Millisecond)
			}
			first = time.Since(begun)
			w.redis.SetError("")
			time.Sleep(6 * time.Second)
			return first
		}
		for range 5 {
			if d := pauses("NOPERM no"); d < 240*time.Millisecond {
				t.Errorf("probed %v after NOPERM", d)
			}
			if d := pauses("LOADING no"); d > 260*time.Millisecond {
				t.Errorf("probed only %v after LOADING", d)
			}
		}
	})
}

// The script cache is emptied behind our back: only what fails is sent again,
// and counted once.
//
// Fault 21: the cache is emptied and nobody notices.
func TestNoScript(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		for range 20 {
			if err := w.admin.ScriptFlush(bg).Err(); err != nil {
				t.Fatal(err)
			}
			for _, key := range []string{"a", "b", "c", "d", "e"} {
				n.Allow(key, longWindow)
			}
			time.Sleep(150 * time.Millisecond)
		}
		time.Sleep(time.Second)
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			w.wantUsed(key, longWindow, 20)
		}
		if s := n.Figures(); s.Failures != 0 || s.StateChanges != 1 {
			t.Errorf("a flushed script cache was noticed: %+v", s)
		}
	})
}

// A stall of Redis that is brief degrades nobody. That all it fails is one round is for the simulator to show.
//
// Fault 81: 0.15 and 0.3 s degrade nobody, 1 s does.
func TestStall(t *testing.T) {
	for _, stall := range []time.Duration{150 * time.Millisecond, 300 * time.Millisecond, time.Second} {
		for shift := range 10 { // another moment between two heartbeats each time
			inBubble(t, func(t *testing.T, w *world) {
				var seen changes
				n := w.synced(hybrid.Options{OnStateChange: seen.add})
				use := func(d time.Duration) {
					for begun := time.Now(); time.Since(begun) < d; time.Sleep(time.Millisecond) {
						n.Allow("hot", perSecond[0])
						n.Allow(fmt.Sprint("key", time.Now().UnixMilli()%50), longWindow)
					}
				}
				use(2*time.Second + time.Duration(shift)*97*time.Millisecond)
				n.net.set(func(n *network) { n.stalled = time.Now().Add(stall) })
				use(2 * time.Second)
				if modes := seen.modes(); slices.Contains(modes, hybrid.Degraded) != (stall == time.Second) {
					t.Errorf("a stall of %v: modes %v", stall, modes)
				}
				time.Sleep(5 * time.Second)
				wantMode(t, n.Limiter, hybrid.Synced)
				conserved(t, n.Limiter, true)
			})
		}
	}
}
