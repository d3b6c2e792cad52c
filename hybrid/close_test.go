package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/redis/go-redis/v9"
)

// Close reports what is pending, and the others no longer count the node.
//
// Fault 32: the last units are booked and the node is gone.
func TestCloseReportsAndLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		nodes := w.fleet(2, unhurried)
		a, b := nodes[0], nodes[1]
		a.Allow("k", hundred)
		time.Sleep(15 * time.Millisecond)
		admitted(a.Limiter, "k", hundred, 7)
		w.wantUsed("k", hundred, 1)
		if err := a.Shutdown(bg); err != nil {
			t.Fatal(err)
		}
		w.wantUsed("k", hundred, 8)
		conserved(t, a.Limiter, true)
		wantMode(t, a.Limiter, hybrid.Closed)
		time.Sleep(3100 * time.Millisecond) // a smaller number is believed when it lasts
		if n := b.State().Nodes; n != 1 {
			t.Errorf("b still counts %d nodes", n)
		}
		time.Sleep(time.Minute) // a stray copy of a batch is known for that long
		keys, err := w.admin.Keys(bg, "hl:1:*node:*").Result()
		if err != nil || len(keys) != 0 {
			t.Errorf("ledgers left behind: %q, %v", keys, err)
		}
		if err := a.rdb.Ping(bg).Err(); err != nil {
			t.Errorf("the caller's client does not work any more: %v", err)
		}
	})
}

// Faults 32, 33: closing again does nothing; checks are still answered.
func TestCloseTwiceAndAfterwards(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		wantAdmitted(t, n.Limiter, "k", longTen, 4, 4)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := n.Shutdown(bg); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := n.Shutdown(bg); err != nil {
			t.Error(err)
		}
		// Answered from memory: no panic, no fresh limit.
		wantAdmitted(t, n.Limiter, "k", longTen, 20, 6)
		wantAdmitted(t, n.Limiter, "new", longTen, 20, 10)
		if res := n.Take("k", longTen, 1); res.Allowed || res.Source != limit.SourceDegraded {
			t.Errorf("%+v, want a refusal by a degraded limiter", res)
		}
		if err := n.Flush(bg); !errors.Is(err, limit.ErrClosed) {
			t.Errorf("flush: %v, want ErrClosed", err)
		}
		wantMode(t, n.Limiter, hybrid.Closed)
		conserved(t, n.Limiter, false)
		n.Peek("k", longTen)
	})
}

// While Redis is away Close goes on asking at pauses that grow until its context
// ends, and says what is lost.
//
// Faults 32, 83: closing keeps to its time and says what is lost.
func TestCloseDuringOutage(t *testing.T) {
	for name, fault := range map[string]func(*network){
		"refused": func(n *network) { n.down() },
		"silent":  func(n *network) { n.set(func(n *network) { n.swallow = true }) },
	} {
		for _, known := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, noticed %v", name, known), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					var log logbook
					n := w.synced(hybrid.Options{Logger: slog.New(&log)})
					n.Allow("k", longTen)
					time.Sleep(time.Second)
					fault(n.net)
					if known {
						time.Sleep(5 * time.Second)
						wantMode(t, n.Limiter, hybrid.Degraded)
					}
					wantAdmitted(t, n.Limiter, "k", longTen, 3, 3)
					begun, before := time.Now(), n.Figures()
					err := n.Close()
					if took := time.Since(begun); took < 5*time.Second || took > 5*time.Second+time.Millisecond {
						t.Errorf("Close took %v, want the 5 s that it has", took)
					}
					// 15 attempts, the probes that are due by themselves meanwhile (at
					// least 5 ms, on average half of a pause that doubles up to 2 s:
					// about 10), and what it takes to notice.
					after := n.Figures()
					if beats, batches := after.Heartbeats-before.Heartbeats, after.Batches-before.Batches; beats > 35 || batches > 6 {
						t.Errorf("%d heartbeats and %d batches in 5 s", beats, batches)
					}
					var unavailable *hybrid.UnavailableError
					if !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "3 admitted units") {
						t.Errorf("%v: want an UnavailableError and the number of units lost", err)
					}
					if text := log.text(); !strings.Contains(text, "ERROR rate limiter closed before all was reported") || !strings.Contains(text, "units=3") {
						t.Errorf("a deferred Close drops its error, and the log does not have it:\n%s", text)
					}
					if s := n.State(); s.Mode != hybrid.Closed || s.Err == nil {
						t.Errorf("%v, %v", s, s.Err)
					}
				})
			})
		}
	}
}

// An outage that is older than the time that Close has is not waited for. What Close says is
// one line, and true.
//
// Fault 83: Close waits only as long as there is hope.
func TestCloseAfterALongOutage(t *testing.T) {
	for _, c := range []struct {
		age, has time.Duration
		units    int
		waits    bool
	}{
		{time.Minute, 5 * time.Second, 3, false},
		{8 * time.Second, 5 * time.Second, 3, false}, // it is noticed within 2 s
		{3 * time.Second, 5 * time.Second, 3, true},
		{time.Minute, 2 * time.Minute, 3, true},
		{time.Second, 5 * time.Second, 0, false},
	} {
		inBubble(t, func(t *testing.T, w *world) {
			n := w.synced(hybrid.Options{})
			time.Sleep(time.Second)
			n.net.down()
			time.Sleep(c.age)
			wantAdmitted(t, n.Limiter, "k", longTen, c.units, c.units)
			ctx, cancel := context.WithTimeout(bg, c.has)
			defer cancel()
			begun := time.Now()
			err := n.Shutdown(ctx)
			if took := time.Since(begun); (took >= c.has) != c.waits || !c.waits && took > time.Second {
				t.Errorf("%+v: Close took %v", c, took)
			}
			if text := fmt.Sprint(err); (err != nil) != (c.units > 0) || strings.Contains(text, "\n") || strings.Contains(text, "hangs") || err != nil && !strings.Contains(text, "unavailable: ") {
				t.Errorf("%+v: %s", c, text)
			}
		})
	}
}

// What only an operator can mend is not waited for.
//
// Fault 25: closing without a permission ends at once.
func TestCloseWithoutPermission(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		w.redis.SetError("NOPERM this user has no permissions to run the 'evalsha' command")
		n.Allow("k", longTen)
		begun := time.Now()
		err := n.Shutdown(bg)
		if took := time.Since(begun); took > time.Second {
			t.Errorf("Close took %v", took)
		}
		var unavailable *hybrid.UnavailableError
		if !errors.As(err, &unavailable) || unavailable.Reason != "noperm" {
			t.Errorf("%v: want an UnavailableError for want of a permission", err)
		}
		w.redis.SetError("")
	})
}

// A client without a time-out of its own ignores the end of a context. Shutdown does not wait for its
// last call either, by which the node leaves.
//
// Fault 32: closing ends with its context.
func TestCloseWithAClientThatNeverGivesUp(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		net := new(network)
		rdb := w.client(net, func(o *redis.Options) {
			o.ContextTimeoutEnabled, o.MaxRetries = false, -1
			o.ReadTimeout = 20 * time.Second
		})
		n := newLimiter(t, rdb, hybrid.Options{})
		time.Sleep(2 * time.Second)
		n.Allow("k", longTen)
		time.Sleep(2 * time.Second)
		net.set(func(n *network) { n.swallow = true })
		ctx, cancel := context.WithTimeout(bg, 300*time.Millisecond)
		defer cancel()
		begun := time.Now()
		err := n.Shutdown(ctx)
		if took := time.Since(begun); took > 301*time.Millisecond || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v after %v", err, took)
		}
		time.Sleep(20 * time.Second)
	})
}

// Units that are admitted while a limiter closes are in the error. They are no fault of Redis, and
// nobody must be woken by a line in the log, at each restart of a service that goes on asking.
func TestCloseUnderTraffic(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log logbook
		n := w.synced(hybrid.Options{Logger: slog.New(&log)})
		n.net.set(func(n *network) { n.lag = time.Millisecond })
		million := limit.Must(limit.PerMinute("million", 1_000_000))
		var traffic sync.WaitGroup
		ended := make(chan struct{})
		traffic.Go(func() {
			for {
				select {
				case <-ended:
					return
				case <-time.After(100 * time.Microsecond):
					n.Allow("k", million)
				}
			}
		})
		time.Sleep(time.Second)
		err := n.Close()
		close(ended)
		traffic.Wait()
		if err == nil || !strings.Contains(err.Error(), "were admitted while closing") {
			t.Errorf("%v: nothing was admitted while it closed, the test shows nothing", err)
		}
		if log.alarms() > 0 {
			t.Errorf("alarms:\n%s", log.text())
		}
	})
}

// A logger that takes its time still gets the line about lost units, within the time of Close.
func TestCloseWaitsForASlowLogger(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log slowLogbook
		n := w.synced(hybrid.Options{Logger: slog.New(&log)})
		n.net.down()
		time.Sleep(5 * time.Second)
		n.Allow("k", longTen)
		if err := n.Close(); err == nil || !strings.Contains(log.text(), "closed before all was reported") {
			t.Errorf("%v:\n%s", err, log.text())
		}
	})
}

// slowLogbook is a logbook that takes 30 ms for a line.
type slowLogbook struct{ logbook }

func (b *slowLogbook) Handle(ctx context.Context, r slog.Record) error {
	time.Sleep(30 * time.Millisecond)
	return b.logbook.Handle(ctx, r)
}

// A context that is over already: Close stops everything all the same, and a
// step of the reconciler that was still under way does not bring the limiter
// back to life.
//
// Fault 32: closing under a context that is over stops everything.
func TestCloseCanceled(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for reading := range 8 {
			var gate gatedClock
			gate.stopAt(reading + 1) // one of them takes in the first answer of Redis
			var n *node
			go func() { n = w.node(hybrid.Options{MaxKeys: 1, Clock: &gate}, nil) }()
			synctest.Wait()
			if n == nil { // stopped in New itself
				gate.release()
				synctest.Wait()
			}
			ctx, cancel := context.WithCancel(bg)
			cancel()
			closed := make(chan error, 1)
			go func() { closed <- n.Shutdown(ctx) }()
			synctest.Wait()
			if gate.gate != nil {
				gate.release()
			}
			if err := <-closed; err != nil && !errors.Is(err, context.Canceled) { // nothing was pending
				t.Errorf("%v, want the context's error, or none if nothing hangs", err)
			}
			time.Sleep(time.Second)
			wantMode(t, n.Limiter, hybrid.Closed)
			if src := n.Take("k", longWindow, 1).Source; src != limit.SourceDegraded {
				t.Fatalf("a check after Close rests on %v knowledge", src)
			}
		}
	})
}

// Units of a key that Redis cannot use have not been reported, and Close says
// so although everything else went well.
func TestCloseWithQuarantinedKey(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		if err := w.redis.Set(counterKey(longTen, "bad"), "no counter at all"); err != nil {
			t.Fatal(err)
		}
		admitted(n.Limiter, "bad", longTen, 3)
		time.Sleep(time.Second)
		if err := n.Shutdown(bg); err == nil || !strings.Contains(err.Error(), "3 admitted units") {
			t.Errorf("%v: want the number of units lost", err)
		}
	})
}

// Fault 32: closing waits for what is under way.
func TestCloseDuringFlush(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		n.Allow("k", longTen)
		time.Sleep(time.Second)
		n.net.set(func(n *network) { n.lag = 100 * time.Millisecond })
		n.Allow("k", longTen)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := n.Flush(bg); err != nil && !errors.Is(err, limit.ErrClosed) {
					t.Errorf("flush: %v", err)
				}
			})
		}
		synctest.Wait()
		if err := n.Shutdown(bg); err != nil {
			t.Errorf("close: %v", err)
		}
		wg.Wait()
		w.wantUsed("k", longTen, 2)
	})
}

// Checks, flushes and readings while the limiter is being closed: nothing
// panics or races, and no key gets a second limit.
//
// Fault 33: checks, readings and closing at once.
func TestCloseWhileInUse(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for range 5 {
			n := w.synced(hybrid.Options{})
			var wg sync.WaitGroup
			stop := make(chan struct{})
			got := make([]int, 4)
			for i := range got {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						if n.Allow("k", longTen) {
							got[i]++
						}
						_, _, _ = n.State(), n.Figures(), n.Peek("other", longFunnel)
						time.Sleep(time.Microsecond)
					}
				})
			}
			time.Sleep(time.Millisecond)
			if err := n.Shutdown(bg); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Millisecond)
			close(stop)
			wg.Wait()
			if sum := got[0] + got[1] + got[2] + got[3]; sum > 10 {
				t.Errorf("%d of 10 admitted", sum)
			}
			w.redis.FlushAll()
		}
	})
}

// Close fails only if something is lost, and then it says so: not because Redis is away, not because of
// units that do not count any more, and not because the others count the node a little longer.
//
// Fault 32: closing in an outage with nothing to report is no failure.
func TestCloseWithNothingToReport(t *testing.T) {
	second, funnel := limit.Must(limit.FixedWindow("second", 5, time.Second)), limit.Must(limit.TokenBucket("fast", 5, time.Second, 5))
	funnelHour := limit.Must(limit.TokenBucket("slow", 7, time.Hour, 7)) // a unit is no whole number of ns
	drop := func(n *network) { n.down() }
	swallow := func(n *network) { n.set(func(n *network) { n.swallow = true }) }
	for name, c := range map[string]struct {
		fault func(*network)
		use   func(n *node) // in the outage
		idle  time.Duration // after that
		lost  string
	}{
		"refused":        {drop, func(*node) {}, 0, ""},
		"silent":         {swallow, func(*node) {}, 0, ""},
		"expired":        {drop, func(n *node) { wantAdmitted(t, n.Limiter, "k", second, 5, 5) }, 3 * time.Second, ""},
		"leaked":         {drop, func(n *node) { wantAdmitted(t, n.Limiter, "k", funnel, 3, 3) }, time.Minute, ""},
		"handed back":    {drop, func(n *node) { n.Allow("k", longTen); n.Refund("k", longTen, 1) }, 0, ""},
		"a unit":         {drop, func(n *node) { n.Allow("k", longTen) }, 0, "1 admitted unit"},
		"back, reported": {drop, func(n *node) { n.Refund("known", longTen, 3); n.Refund("bucket", funnelHour, 2) }, 0, "close: 5 units that were given back"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				var log logbook
				n := w.synced(hybrid.Options{Logger: slog.New(&log)})
				n.AllowN("known", longTen, 4)
				n.AllowN("bucket", funnelHour, 4)
				time.Sleep(2 * time.Second)
				c.fault(n.net)
				time.Sleep(10 * time.Second)
				wantMode(t, n.Limiter, hybrid.Degraded)
				c.use(n)
				time.Sleep(c.idle)
				err := n.Close()
				if (err != nil) != (c.lost != "") || err != nil && !strings.Contains(err.Error(), c.lost) {
					t.Errorf("%v, want %q", err, c.lost)
				}
				if s := n.State(); s.Mode != hybrid.Closed || (s.Err != nil) != (c.lost != "") {
					t.Errorf("%v, %v", s, s.Err)
				}
				if text := log.text(); strings.Contains(text, "closed before all") != (c.lost == "1 admitted unit") {
					t.Errorf("the log:\n%s", text)
				}
			})
		})
	}
}

// Redis may go away between the last report and the end. The others count the node until its entry expires.
func TestCloseWithoutLeaving(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		n.Allow("k", longTen)
		if err := n.Flush(bg); err != nil {
			t.Fatal(err)
		}
		n.net.down()
		if err := n.Shutdown(bg); err != nil {
			t.Errorf("nothing was lost: %v", err)
		}
	})
}

// Redis stops for 0.4 s in the moment in which a process ends that has 2 s to do so: that is more than the
// limiter needs to take it for away. All is reported.
//
// Fault 83: everything is reported within the context.
func TestCloseWhileRedisStops(t *testing.T) {
	for _, known := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world) {
			n := w.synced(hybrid.Options{})
			begun := time.Now()
			n.net.set(func(n *network) { n.swallow = true })
			wantAdmitted(t, n.Limiter, "k", hundred, 40, 40)
			for known && n.State().Mode != hybrid.Degraded {
				time.Sleep(time.Millisecond)
			}
			time.AfterFunc(max(400*time.Millisecond, time.Since(begun)+100*time.Millisecond)-time.Since(begun), n.net.up)
			ctx, cancel := context.WithTimeout(bg, 2*time.Second)
			defer cancel()
			if err := n.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			conserved(t, n.Limiter, true)
			w.wantUsed("k", hundred, 40)
			if live := w.admin.ZCard(bg, keyspace().NodesKey()).Val(); live != 0 {
				t.Errorf("%d live nodes", live)
			}
		})
	}
}
