package hybrid_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// New keys are asked for within 10 ms, and nothing else happens by itself for 5 s.
var unhurried = hybrid.Options{SyncInterval: 5 * time.Millisecond, MaxLag: 5 * time.Second}

// Nothing stays unreported, and no view is older, than for an interval.
var prompt = hybrid.Options{MaxLag: 100 * time.Millisecond}

// The first check of a key is answered from nothing, and asks Redis at once.
func TestFirstTouch(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		deaf := unhurried
		deaf.NoNotices = true
		a, b := w.synced(unhurried), w.synced(deaf)
		wantAdmitted(t, a.Limiter, "k", longTen, 10, 10)
		time.Sleep(15 * time.Millisecond)
		w.wantUsed("k", longTen, 10)
		res := b.Take("k", longTen, 1)
		if !res.Allowed || res.Source != limit.SourceUnsynced {
			t.Fatalf("%+v, want it admitted, unsynced", res)
		}
		time.Sleep(15 * time.Millisecond)
		if res = b.Take("k", longTen, 1); res.Allowed || res.Source != limit.SourceSynced {
			t.Fatalf("5 ms later: %+v, want a refusal, synced", res)
		}
	})
}

// Near the limit the interval does not count: a node that has used half of
// its share of what is left reports at once.
func TestNearLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(unhurried)
		n.Allow("k", hundred)
		time.Sleep(15 * time.Millisecond)
		w.wantUsed("k", hundred, 1)
		admitted(n.Limiter, "k", hundred, 40) // of the 49 that make it urgent
		time.Sleep(time.Second)
		w.wantUsed("k", hundred, 1)
		admitted(n.Limiter, "k", hundred, 9)
		time.Sleep(15 * time.Millisecond)
		w.wantUsed("k", hundred, 50)
		admitted(n.Limiter, "k", hundred, 25) // half of the other half
		time.Sleep(15 * time.Millisecond)
		w.wantUsed("k", hundred, 75)
		// And far from it, it does count.
		n.Allow("far", longWindow)
		time.Sleep(15 * time.Millisecond)
		admitted(n.Limiter, "far", longWindow, 1000)
		time.Sleep(2 * time.Second)
		w.wantUsed("far", longWindow, 1)
		time.Sleep(9 * time.Second)
		w.wantUsed("far", longWindow, 1001)
	})
}

// With three nodes a share is a third.
func TestNearLimitOfAShare(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		nodes := w.fleet(3, unhurried)
		n := nodes[0]
		n.Allow("k", hundred)
		time.Sleep(15 * time.Millisecond)
		admitted(n.Limiter, "k", hundred, 7) // a quarter of a share is 8
		time.Sleep(100 * time.Millisecond)
		w.wantUsed("k", hundred, 1)
		n.Allow("k", hundred)
		time.Sleep(15 * time.Millisecond)
		w.wantUsed("k", hundred, 9)
	})
}

// A key that is asked and admits nothing has nothing to report. It learns all
// the same of what others consume, and of a reset.
func TestDeniedKeyIsRefreshed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.synced(prompt), w.synced(prompt)
		a.Allow("k", longTen)
		time.Sleep(100 * time.Millisecond) // b's first answer is to count it
		b.Allow("k", longTen)
		time.Sleep(time.Second)
		for want := int64(7); want >= 0; want-- {
			a.Allow("k", longTen)
			var res limit.Result
			for range 8 { // 800 ms: an interval, five of them, and a little
				res = b.Take("k", longTen, 9)
				if res.Allowed {
					t.Fatal("9 of 8 units admitted")
				}
				time.Sleep(100 * time.Millisecond)
			}
			if res.Remaining != want {
				t.Fatalf("b sees %d left, want %d", res.Remaining, want)
			}
		}
		r, err := remote.New(w.admin, remote.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Reset(bg, "k", longTen); err != nil {
			t.Fatal(err)
		}
		yes := 0
		for range 10 {
			if b.AllowN("k", longTen, 9) {
				yes++
			}
			a.AllowN("k", longTen, 11) // denied for ever, but shows an interest
			time.Sleep(100 * time.Millisecond)
		}
		if yes != 1 {
			t.Errorf("%d of the requests after a reset admitted, want 1", yes)
		}
		time.Sleep(time.Second)
		w.wantUsed("k", longTen, 9) // not restored from a's old view
		wantAdmitted(t, a.Limiter, "k", longTen, 10, 1)
	})
}

// Idle nodes notice a loss of data within a heartbeat, and report to Redis what
// they know.
//
// Fault 28: a node with nothing to say restores what it knows.
func TestIdleNodeNoticesFlushAll(t *testing.T) {
	for _, rule := range []*limit.Rule{longTen, longFunnel} {
		t.Run(rule.Algorithm().String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				deaf := prompt
				deaf.NoNotices = true
				a, b := w.synced(prompt), w.synced(deaf)
				wantAdmitted(t, a.Limiter, "k", rule, 20, 10)
				time.Sleep(time.Second)
				b.Allow("k", rule) // one too many, unsynced
				time.Sleep(time.Second)
				wantAdmitted(t, b.Limiter, "k", rule, 5, 0)
				time.Sleep(2 * time.Second)
				w.redis.FlushAll()
				w.wantUsed("k", rule, 0)
				time.Sleep(1200 * time.Millisecond)
				w.wantUsed("k", rule, 10)
				if rule == longTen { // both nodes have reported it, and it counts once
					w.wantTotal("k", rule, 11)
				}
				for _, n := range []*node{a, b} {
					if s := n.Stats(); s.Losses == 0 {
						t.Errorf("a loss went unnoticed: %+v", s)
					}
					wantMode(t, n.Limiter, hybrid.Synced)
					wantAdmitted(t, n.Limiter, "k", rule, 5, 0)
				}
				c := w.synced(prompt)
				c.AllowN("k", rule, 11) // cannot be admitted; makes c look it up
				time.Sleep(115 * time.Millisecond)
				wantAdmitted(t, c.Limiter, "k", rule, 5, 0)
			})
		})
	}
}

// A flush books what is pending and fetches every view anew.
func TestFlush(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.synced(unhurried), w.synced(unhurried)
		b.Allow("k", hundred)
		a.Allow("k", hundred)
		time.Sleep(15 * time.Millisecond)
		admitted(a.Limiter, "k", hundred, 10)
		w.wantUsed("k", hundred, 2)
		begun := time.Now()
		flush(t, a.Limiter)
		w.wantUsed("k", hundred, 12)
		flush(t, b.Limiter) // b has nothing to report, but wants to know
		if got := b.Peek("k", hundred).Remaining; got != 88 {
			t.Errorf("after its flush b sees %d left, want 88", got)
		}
		if took := time.Since(begun); took > 100*time.Millisecond {
			t.Errorf("two flushes took %v", took)
		}
		conserved(t, a.Limiter, true)
		flush(t, a.Limiter) // with nothing to do
	})
}

// A key that is asked a thousand times is one operation when it is reported.
//
// Fault 57: units gather in the counter.
func TestManyUnitsAreOneOperation(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(unhurried)
		n.Allow("k", longWindow)
		time.Sleep(100 * time.Millisecond) // its first touch is reported at once
		before := n.Stats()
		wantAdmitted(t, n.Limiter, "k", longWindow, 1000, 1000)
		flush(t, n.Limiter)
		after := n.Stats()
		if keys, batches := after.KeysSynced-before.KeysSynced, after.Batches-before.Batches; keys != 1 || batches != 1 {
			t.Errorf("%d operations in %d batches, want one", keys, batches)
		}
		w.wantTotal("k", longWindow, 1001)
	})
}

// Many flushes at once, while checks go on: each covers what was admitted
// before it began.
func TestFlushConcurrent(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(unhurried)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 20 {
					before := n.Stats().AdmittedUnits
					n.Allow("k", longWindow)
					flush(t, n.Limiter)
					if acked := n.Stats().AckedUnits; acked < before+1 {
						t.Errorf("after a flush %d units are booked, %d were admitted before", acked, before+1)
					}
				}
			})
		}
		wg.Wait()
		w.wantUsed("k", longWindow, 160)
	})
}

func TestFlushGivesUp(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		n.Allow("k", longTen)
		time.Sleep(time.Second)
		n.net.set(func(n *network) { n.swallow = true })
		n.Allow("k", longTen)
		ctx, cancel := context.WithTimeout(bg, 50*time.Millisecond)
		defer cancel()
		begun := time.Now()
		if err := n.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the context's error", err)
		}
		if took := time.Since(begun); took > 60*time.Millisecond {
			t.Errorf("the flush outlived its context: %v", took)
		}
		done, cancelDone := context.WithCancel(bg)
		cancelDone()
		if err := n.Flush(done); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want the context's error", err)
		}
		time.Sleep(5 * time.Second)
		wantMode(t, n.Limiter, hybrid.Degraded)
		var unavailable *hybrid.UnavailableError
		if err := n.Flush(bg); !errors.As(err, &unavailable) || unavailable.Reason != "timeout" {
			t.Errorf("%v, want an UnavailableError", err)
		}
		n.net.up()
		// A flush does not wait for the next probe, it is one.
		if err := n.Flush(bg); err != nil {
			t.Errorf("flush of a Redis that is back: %v", err)
		}
		w.wantUsed("k", longTen, 2)
	})
}

// The caller gives up in the very moment in which the answer arrives. Whoever
// is first, the limiter must live on: a request that is withdrawn when it has
// been answered already is not another request.
func TestFlushWithdrawnAsItEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var gate gatedClock
		n := w.synced(hybrid.Options{SyncInterval: 10 * time.Second, Clock: &gate})
		const rounds = 8
		for reading := range rounds {
			n.Allow("k", longWindow)
			// The reconciler stops in the middle of a step: of that which
			// takes in the answer, in one of the rounds.
			gate.stopAt(reading + 1)
			ctx, cancel := context.WithCancel(bg)
			go n.Flush(ctx)
			synctest.Wait()
			cancel()
			synctest.Wait()
			gate.release()
			time.Sleep(100 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		if err := n.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		w.wantUsed("k", longWindow, rounds)
	})
}

// A key in Redis that is not ours fails alone, and heals by itself once an
// operator has removed it.
//
// Fault 27: a broken key is tried every 5 s and limited meanwhile.
func TestQuarantine(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{Shards: 1, MaxLag: 100 * time.Millisecond}) // all keys in one batch
		ks, err := redisstore.NewKeyspace("", 1)
		if err != nil {
			t.Fatal(err)
		}
		bad, good := ks.CounterKey(longTen, "bad"), ks.CounterKey(longTen, "good")
		if err := w.redis.Set(bad, "no counter at all"); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			n.Allow("bad", longTen)
			n.Allow("good", longTen)
			time.Sleep(300 * time.Millisecond)
		}
		if got := totalIn(t, w.admin, good); got != 5 {
			t.Errorf("the neighbour has %d units, want 5", got)
		}
		if s := n.Stats(); s.Quarantined == 0 || s.PendingUnits != 5 {
			t.Errorf("%+v, want a quarantined key with 5 units", s)
		}
		wantMode(t, n.Limiter, hybrid.Synced)
		wantAdmitted(t, n.Limiter, "bad", longTen, 20, 5) // limited all the same
		if v, _ := w.redis.Get(bad); v != "no counter at all" {
			t.Errorf("somebody's key was overwritten: %q", v)
		}
		for range 3 { // a flush tries at once, and must not add to the later tries
			flush(t, n.Limiter)
			time.Sleep(700 * time.Millisecond)
		}
		before := n.Stats().Quarantined
		for range 600 { // asked all the time, it is tried no more often
			n.Allow("bad", longTen)
			time.Sleep(100 * time.Millisecond)
		}
		if got := n.Stats().Quarantined - before; got < 10 || got > 14 {
			t.Errorf("tried %d times in a minute, want every 5 s", got)
		}
		w.redis.Del(bad)
		time.Sleep(6 * time.Second)
		if got := totalIn(t, w.admin, bad); got != 10 {
			t.Errorf("after the repair it has %d units, want 10", got)
		}
		conserved(t, n.Limiter, true)
		if res := n.Take("bad", longTen, 1); res.Allowed || res.Source != limit.SourceSynced {
			t.Errorf("%+v, want a refusal, synced", res)
		}
	})
}

// Garbage in the ledger is a loss like any other.
//
// Fault 27: a ledger that is garbage is repaired.
func TestGarbageLedger(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{Shards: 1})
		n.Allow("k", longTen)
		time.Sleep(time.Second)
		for _, garbage := range []string{"", "x", "99999999 5 -", "1 2 3 4 5", "1 x 2 -"} {
			keys, err := w.admin.Keys(bg, "hl:1:{0}:node:*").Result()
			if err != nil || len(keys) != 1 {
				t.Fatalf("ledgers %q, %v", keys, err)
			}
			if err := w.redis.Set(keys[0], garbage); err != nil {
				t.Fatal(err)
			}
			n.Allow("k", longTen)
			time.Sleep(2 * time.Second)
		}
		wantMode(t, n.Limiter, hybrid.Synced)
		conserved(t, n.Limiter, true)
		ks, _ := redisstore.NewKeyspace("", 1)
		if got := totalIn(t, w.admin, ks.CounterKey(longTen, "k")); got != 6 {
			t.Errorf("Redis has %d units, want 6: %+v", got, n.Stats())
		}
	})
}
