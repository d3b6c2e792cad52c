package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
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
		polling := unhurried
		polling.PollOnly = true
		a, b := w.synced(unhurried), w.synced(polling)
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
		t.Run(arith.Of(rule).Algorithm.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				polling := prompt
				polling.PollOnly = true
				a, b := w.synced(prompt), w.synced(polling)
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
					if s := n.Figures(); s.Losses == 0 {
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

// A key that is asked a thousand times is one operation when it is reported.
//
// Fault 57: units gather in the counter.
func TestManyUnitsAreOneOperation(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(unhurried)
		n.Allow("k", longWindow)
		time.Sleep(100 * time.Millisecond) // its first touch is reported at once
		before := n.Figures()
		wantAdmitted(t, n.Limiter, "k", longWindow, 1000, 1000)
		flush(t, n.Limiter)
		after := n.Figures()
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
					before := n.Figures().AdmittedUnits
					n.Allow("k", longWindow)
					flush(t, n.Limiter)
					if acked := n.Figures().BookedUnits; acked < before+1 {
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
		if s := n.Figures(); s.Quarantined == 0 || s.QuarantinedKeys != 1 || s.PendingUnits != 5 {
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
		before := n.Figures().Quarantined
		for range 600 { // asked all the time, it is tried no more often
			n.Allow("bad", longTen)
			time.Sleep(100 * time.Millisecond)
		}
		if got := n.Figures().Quarantined - before; got < 10 || got > 14 {
			t.Errorf("tried %d times in a minute, want every 5 s", got)
		}
		w.redis.Del(bad)
		time.Sleep(6 * time.Second)
		if got := totalIn(t, w.admin, bad); got != 10 {
			t.Errorf("after the repair it has %d units, want 10", got)
		}
		conserved(t, n.Limiter, true)
		if keys := n.Figures().QuarantinedKeys; keys != 0 {
			t.Errorf("%d keys in quarantine after the repair", keys)
		}
		if res := n.Take("bad", longTen, 1); res.Allowed || res.Source != limit.SourceSynced {
			t.Errorf("%+v, want a refusal, synced", res)
		}
	})
}

// Garbage in the ledger is a loss like any other, and so is a number that no node reaches.
//
// Fault 27: a ledger that is garbage, or ahead of its node, is repaired.
func TestGarbageLedger(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{Shards: 1})
		n.Allow("k", longTen)
		time.Sleep(time.Second)
		for _, garbage := range []string{"", "x", "99999999 5 -", "1 2 3 4 5", "1 x 2 -",
			"9007199254740992 0 0 - -", "9007199254740991 0 0 - -", "1000000 0 0 - -"} {
			before := n.Figures().Batches
			keys, err := w.admin.Keys(bg, "hl:1:{0}:node:*").Result()
			if err != nil || len(keys) != 1 {
				t.Fatalf("ledgers %q, %v", keys, err)
			}
			if err := w.redis.Set(keys[0], garbage); err != nil {
				t.Fatal(err)
			}
			n.Allow("k", longTen)
			time.Sleep(2 * time.Second)
			if s := n.Figures(); s.PendingUnits != 0 || s.Batches-before > 20 {
				t.Errorf("%q: %d units pending after %d batches", garbage, s.PendingUnits, s.Batches-before)
			}
		}
		wantMode(t, n.Limiter, hybrid.Synced)
		conserved(t, n.Limiter, true)
		ks, _ := redisstore.NewKeyspace("", 1)
		if got := totalIn(t, w.admin, ks.CounterKey(longTen, "k")); got != 9 {
			t.Errorf("Redis has %d units, want 9: %+v", got, n.Figures())
		}
	})
}

// Redis evicts one counter, or loses the ledgers alone, while the nodes are asked for the key.
//
// Fault 28: an exhausted key stays exhausted, and it is reported to Redis again.
func TestKeyEvicted(t *testing.T) {
	for _, rule := range []*limit.Rule{longTen, longFunnel} {
		inBubble(t, func(t *testing.T, w *world) {
			a, b := w.synced(prompt), w.synced(prompt)
			wantAdmitted(t, a.Limiter, "k", rule, 20, 10)
			time.Sleep(time.Second)
			b.AllowN("k", rule, 11) // makes it look the key up
			time.Sleep(time.Second)
			for _, pattern := range []string{counterKey(rule, "k"), "hl:1:*:node:*"} {
				if n := w.admin.Del(bg, w.admin.Keys(bg, pattern).Val()...).Val(); n == 0 {
					t.Fatalf("there is no %s", pattern)
				}
				for range 1000 { // a key that is used up is asked for each 5 s
					wantAdmitted(t, a.Limiter, "k", rule, 1, 0)
					wantAdmitted(t, b.Limiter, "k", rule, 1, 0)
					time.Sleep(10 * time.Millisecond)
				}
				w.wantUsed("k", rule, 10)
			}
			wantMode(t, a.Limiter, hybrid.Synced)
			wantMode(t, b.Limiter, hybrid.Synced)
			if s, o := a.Figures(), b.Figures(); s.Losses == 0 || o.Losses == 0 || s.RolledBackKeys+o.RolledBackKeys == 0 {
				t.Errorf("%v: not noticed: %+v, %+v", rule, s, o)
			}
			everyKeyExpires(t, w.admin)
		})
	}
}

// The list of nodes is a key of another type.
//
// Fault 27: counting and booking go on with the nodes last heard of, there is no hot loop, and the list heals
// once it is removed.
func TestGarbageNodes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		nodes, list := w.fleet(2, prompt), keyspace().NodesKey()
		w.redis.Del(list)
		if err := w.redis.Set(list, "somebody's"); err != nil {
			t.Fatal(err)
		}
		before := nodes[0].Figures()
		for range 100 {
			for _, n := range nodes {
				n.Allow("k", longWindow)
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Second)
		w.wantTotal("k", longWindow, 200)
		for _, n := range nodes {
			if s := n.State(); s.Mode != hybrid.Synced || s.Nodes != 2 {
				t.Errorf("%v, want it synced, with 2 nodes", s)
			}
			conserved(t, n.Limiter, true)
		}
		if failed := nodes[0].Figures().Failures - before.Failures; failed < 3 || failed > 40 {
			t.Errorf("%d heartbeats have failed in 11 s", failed)
		}
		if v, _ := w.redis.Get(list); v != "somebody's" {
			t.Errorf("somebody's key was overwritten: %q", v)
		}
		w.redis.Del(list)
		time.Sleep(10 * time.Second)
		if n := w.admin.ZCard(bg, list).Val(); n != 2 {
			t.Errorf("%d nodes are in the list again", n)
		}
		everyKeyExpires(t, w.admin)
	})
}

// New keys come in floods, and are asked for. What is near its limit goes first.
//
// Fault 84: hot keys stay within 1.1 of their limits, and nobody is degraded.
func TestFloodOfNewKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		hot := limit.Must(limit.FixedWindow("hot", 50, time.Hour))
		nodes, units := w.fleet(3, hybrid.Options{}), 0
		for _, n := range nodes {
			n.net.set(func(n *network) { n.lag = time.Millisecond })
		}
		for ms := range 400 {
			for i, n := range nodes {
				for k := range 7 { // 20,000 a second, of all nodes
					n.Allow(fmt.Sprint("new", i, ms, k), longWindow)
				}
				if ms > 100 && (ms+2*i)%6 == 0 {
					units += admitted(n.Limiter, "hot", hot, 1)
				}
			}
			time.Sleep(time.Millisecond)
		}
		if units < 50 || units > 55 {
			t.Errorf("%d units of the hot key admitted, its limit is 50", units)
		}
		for i, n := range nodes {
			if s := n.Figures(); s.StateChanges != 1 {
				t.Errorf("node %d: %v, %+v", i, n.State(), s)
			}
		}
	})
}
