package hybrid_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

var longFixed = limit.Must(limit.FixedWindow("fixed", 10, 24*time.Hour))

// tens are rules of ten units that hardly come back during a test.
var tens = []*limit.Rule{longTen, longFunnel, longFixed, limit.Must(limit.Quota("quota", 10, limit.Calendar{Unit: limit.Week}))}

func inBubblesOfTens(t *testing.T, test func(t *testing.T, w *world, r *limit.Rule)) {
	for _, r := range tens {
		t.Run(arith.Of(r).Algorithm.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) { test(t, w, r) })
		})
	}
}

// Units that wait to be reported when their key is reset are reported before, so that none arrives after it,
// even if a batch is under way.
func TestResetForgetsWhatIsPending(t *testing.T) {
	inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
		n := w.synced(unhurried)
		wantAdmitted(t, n.Limiter, "k", r, 1, 1)
		time.Sleep(10 * time.Millisecond)
		wantAdmitted(t, n.Limiter, "k", r, 3, 3)
		if err := n.Reset(bg, "k", r); err != nil {
			t.Fatal(err)
		}
		if left := n.Peek("k", r).Remaining; left != 10 {
			t.Errorf("%d remain after the reset", left)
		}
		wantAdmitted(t, n.Limiter, "k", r, 2, 2)
		if err := n.Flush(bg); err != nil {
			t.Fatal(err)
		}
		w.wantUsed("k", r, 2)
		if s := n.Figures(); s.BookedUnits != 6 || s.WithdrawnUnits != 0 {
			t.Errorf("of 6 units %d were reported and %d withdrawn", s.BookedUnits, s.WithdrawnUnits)
		}
		conserved(t, n.Limiter, true)
	})
}

// After a loss of data the nodes restore what they know, which is not what they
// knew before a reset.
func TestResetSurvivesALoss(t *testing.T) {
	inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
		nodes := w.fleet(2, hybrid.Options{})
		wantAdmitted(t, nodes[0].Limiter, "k", r, 9, 9)
		time.Sleep(time.Second)
		nodes[1].Allow("k", r)
		time.Sleep(time.Second)
		if err := nodes[1].Reset(bg, "k", r); err != nil {
			t.Fatal(err)
		}
		nodes[1].Allow("k", r)
		time.Sleep(time.Second)
		w.redis.FlushAll()
		time.Sleep(3 * time.Second)
		w.wantUsed("k", r, 1)
		for _, n := range nodes {
			n.Flush(bg)
			if left := n.Peek("k", r).Remaining; left != 9 {
				t.Errorf("%d remain, want 9", left)
			}
		}
	})
}

// Units come back once, whether or not they had been reported to Redis, and however
// often the report is sent.
func TestRefundOnce(t *testing.T) {
	for name, fault := range map[string]func(*network){
		"sound":        func(*network) {},
		"reply lost":   func(n *network) { n.cut = 1 },
		"request lost": func(n *network) { n.drop = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
				nodes := w.fleet(2, hybrid.Options{})
				n := nodes[0]
				wantAdmitted(t, n.Limiter, "k", r, 6, 6)
				if back := n.Refund("k", r, 2); back != 2 { // still pending
					t.Errorf("%d handed back of 2", back)
				}
				time.Sleep(time.Second)
				w.wantUsed("k", r, 4)
				n.net.set(fault)
				if back := n.Refund("k", r, 3); back != 3 { // booked
					t.Errorf("%d handed back of 3", back)
				}
				if left := n.Peek("k", r).Remaining; left != 9 {
					t.Errorf("%d remain at once, want 9", left)
				}
				wantAdmitted(t, n.Limiter, "k", r, 1, 1)
				time.Sleep(2 * time.Second)
				w.wantUsed("k", r, 2)
				nodes[1].Allow("k", r)
				time.Sleep(time.Second)
				for _, n := range nodes {
					n.Flush(bg)
					if left := n.Peek("k", r).Remaining; left != 7 {
						t.Errorf("%d remain, want 7", left)
					}
					conserved(t, n.Limiter, true)
				}
				if s := n.Figures(); s.RefundedUnits != 5 || s.WithdrawnUnits > 5 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// What is handed back of a sliding window is what counts less, also of its oldest bucket.
func TestRefundOfAFadedBucket(t *testing.T) {
	rule := limit.Must(limit.SlidingWindow("mails", 5, time.Minute))
	inBubble(t, func(t *testing.T, w *world) {
		n := w.fleet(1, hybrid.Options{})[0]
		keys := map[string]int64{"one": 1, "three": 3, "all": 5}
		for round := range 16 {
			for key := range keys {
				wantAdmitted(t, n.Limiter, key, rule, 1, 1)
				time.Sleep(time.Second)
				wantAdmitted(t, n.Limiter, key, rule, 4, 4)
			}
			time.Sleep(50*time.Second + time.Duration(round)*500*time.Millisecond) // what remains differs by round
			for key, units := range keys {
				left := n.Peek(key, rule).Remaining
				back := n.Refund(key, rule, units)
				if got := n.Peek(key, rule).Remaining; got-left != back || back > units || units == 5 && got != 5 {
					t.Errorf("%d of 5 remain; a refund of %d says %d, and %d remain", left, units, back, got)
				}
			}
			time.Sleep(2 * time.Minute)
		}
	})
}

// In an outage units come back at the multiplier that they had, and Redis learns of
// it afterwards.
func TestRefundInAnOutage(t *testing.T) {
	for _, lost := range []bool{false, true} {
		inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
			nodes := w.fleet(2, hybrid.Options{})
			n := nodes[0]
			wantAdmitted(t, n.Limiter, "k", r, 2, 2)
			time.Sleep(time.Second)
			n.net.down()
			time.Sleep(3 * time.Second)
			wantMode(t, n.Limiter, hybrid.Degraded)
			wantAdmitted(t, n.Limiter, "k", r, 10, 4) // (10 - 2) / 2
			if back := n.Refund("k", r, 3); back != 3 {
				t.Errorf("%d handed back", back)
			}
			wantAdmitted(t, n.Limiter, "k", r, 10, 3)
			if back := n.Refund("k", r, 100); back > 6 {
				t.Errorf("%d handed back of 6", back)
			}
			if lost { // a refund that certainly was not booked is not given up
				w.redis.FlushAll()
			}
			n.net.up()
			time.Sleep(5 * time.Second)
			wantMode(t, n.Limiter, hybrid.Synced)
			if used := w.used("k", r); used > 1 {
				t.Errorf("Redis counts %d units, all were handed back", used)
			}
			conserved(t, n.Limiter, true)
			if s := n.Figures(); s.RefundsGivenUp != 0 {
				t.Errorf("%d refunds given up", s.RefundsGivenUp)
			}
		})
	}
}

func TestTakeAtMost(t *testing.T) {
	inBubblesOfTens(t, func(t *testing.T, w *world, r *limit.Rule) {
		nodes := w.fleet(2, hybrid.Options{})
		a, b := nodes[0], nodes[1]
		if granted, res := a.TakeAtMost("k", r, 4); granted != 4 || !res.Allowed || res.Remaining != 6 {
			t.Errorf("%d granted, %+v", granted, res)
		}
		time.Sleep(time.Second)
		b.Allow("k", r)
		time.Sleep(time.Second)
		if granted, res := b.TakeAtMost("k", r, math.MaxInt64); granted != 5 || !res.Allowed || res.Remaining != 0 || res.Source != limit.SourceSynced {
			t.Errorf("%d granted, %+v", granted, res)
		}
		if granted, res := b.TakeAtMost("k", r, 1); granted != 0 || res.Allowed || res.RetryAfter <= 0 || res.RetryAfter == limit.Never {
			t.Errorf("%d granted, %+v", granted, res)
		}
		time.Sleep(time.Second)
		w.wantUsed("k", r, 10)
		if s := b.Figures(); s.AdmittedUnits != 6 {
			t.Errorf("%+v", s)
		}
		for _, n := range nodes {
			conserved(t, n.Limiter, true)
			n.net.down()
		}
		time.Sleep(3 * time.Second)
		if granted, _ := a.TakeAtMost("fresh", r, 100); granted != 5 {
			t.Errorf("%d granted of a share of 5", granted)
		}
	})
}

// What cannot be done is said, and changes nothing.
func TestCallsThatCannotBeMade(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		wantAdmitted(t, n.Limiter, "k", longTen, 3, 3)
		log := limit.Must(limit.SlidingLog("log", 10, time.Hour))
		for name, c := range map[string]struct {
			err, want error
		}{
			"negative": {n.Set(bg, "k", longTen, -1), limit.ErrInvalidN},
			"no rule":  {n.Reset(bg, "k", nil), limit.ErrNilRule},
			"a log":    {n.Reset(bg, "k", log), limit.ErrUnsupported},
			"nil":      {(*hybrid.Limiter)(nil).Reset(bg, "k", longTen), limit.ErrClosed},
			"zero":     {new(hybrid.Limiter).Reset(bg, "k", longTen), limit.ErrClosed},
		} {
			if !errors.Is(c.err, c.want) {
				t.Errorf("%s: %v, want %v", name, c.err, c.want)
			}
		}
		for name, back := range map[string]int64{
			"negative": n.Refund("k", longTen, -5), "smallest": n.Refund("k", longTen, math.MinInt64), "no rule": n.Refund("k", nil, 1),
			"a log": n.Refund("k", log, 1), "unknown": n.Refund("unknown", longTen, 1), "nil": (*hybrid.Limiter)(nil).Refund("k", longTen, 1),
			"zero": new(hybrid.Limiter).Refund("k", longTen, 1), "nothing": n.Refund("k", longTen, 0),
		} {
			if back != 0 {
				t.Errorf("%s: %d handed back", name, back)
			}
		}
		for name, l := range map[string]*hybrid.Limiter{"nil": nil, "zero": new(hybrid.Limiter)} {
			if granted, res := l.TakeAtMost("k", longTen, 1); granted != 0 || res.Allowed {
				t.Errorf("%s: %d granted, %+v", name, granted, res)
			}
		}
		if left := n.Peek("k", longTen).Remaining; left != 7 {
			t.Errorf("%d remain, want 7", left)
		}

		ctx, cancel := context.WithCancel(bg)
		cancel()
		if err := n.Reset(ctx, "k", longTen); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		n.net.down()
		var unavailable *hybrid.UnavailableError
		if err := n.Reset(bg, "k", longTen); !errors.As(err, &unavailable) || unavailable.Reason == "" {
			t.Errorf("in an outage: %v", err)
		}
		n.net.up()
		time.Sleep(5 * time.Second) // a dial that began before fails even now
		w.redis.Set(counterKey(longTen, "bad"), "garbage")
		var key *limit.KeyError
		if err := n.Reset(bg, "bad", longTen); !errors.As(err, &key) {
			t.Errorf("a broken key: %v", err)
		}
		w.redis.Del(counterKey(longTen, "bad"))
		time.Sleep(5 * time.Second)
		if err := n.Shutdown(bg); err != nil {
			t.Fatal(err)
		}
		if err := n.Reset(bg, "k", longTen); !errors.Is(err, limit.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		n.Refund("k", longTen, 1)
		n.TakeAtMost("k", longTen, 1)
	})
}

// All calls at once, from many goroutines: the race detector looks on, and the
// books balance.
func TestCallsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		nodes := w.fleet(2, hybrid.Options{SyncInterval: 5 * time.Millisecond})
		var all sync.WaitGroup
		for i := range 8 {
			n, r := nodes[i%2], tens[i%3]
			all.Go(func() {
				for range 150 {
					n.Allow("k", r)
					n.TakeAtMost("k", r, 2)
					n.Refund("k", r, 3)
					if i < 2 {
						if err := n.Set(bg, "k", r, 2); err != nil {
							t.Error(err)
						}
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		all.Wait()
		time.Sleep(2 * time.Second)
		for _, n := range nodes {
			if err := n.Flush(bg); err != nil {
				t.Error(err)
			}
			conserved(t, n.Limiter, true)
		}
		for _, r := range tens {
			used := w.used("k", r)
			for _, n := range nodes {
				if left := n.Peek("k", r).Remaining; left != 10-used {
					t.Errorf("%v: %d remain, Redis counts %d", r, left, used)
				}
			}
		}
	})
}
