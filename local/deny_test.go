package local

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Whatever has happened to a counter, it refuses unasked only what it would
// refuse if it were asked, and says the same of what it knows.
func TestDenialsAreTrue(t *testing.T) {
	rules := []*limit.Rule{
		funnelRule(t, 5, 7, 300*time.Millisecond), funnelRule(t, 1, 1000, time.Millisecond), funnelRule(t, 0, 1, time.Second),
		windowRule(t, 5, 50*time.Millisecond, 10), windowRule(t, 20, time.Second, 1), windowRule(t, 0, time.Second, 3),
		limit.Must(limit.FixedWindow("f", 3, 20*time.Millisecond)), limit.Must(limit.SlidingLog("l", 3, 20*time.Millisecond)),
	}
	for i, r := range rules {
		for _, linked := range []bool{false, true} {
			if linked && r.Algorithm() == limit.AlgorithmSlidingLog {
				continue
			}
			denied := 0
			for seed := range uint64(40) {
				denied += denials(t, r, linked, seed)
				if t.Failed() {
					t.Fatalf("rule %d, %v, linked %v, seed %d", i, r, linked, seed)
				}
			}
			if denied < 1000 && r.Algorithm() != limit.AlgorithmSlidingLog {
				t.Errorf("%v, linked %v: %d denials", r, linked, denied)
			}
		}
	}
}

// denials plays with a counter and returns how often it has refused unasked.
func denials(t *testing.T, r *limit.Rule, linked bool, seed uint64) (denied int) {
	rng := rand.New(rand.NewPCG(seed, 7))
	var link *Link
	if linked {
		link = newTestLink()
	}
	larger := limit.Must(limit.Funnel(r.Name(), r.Limit()+1, 7, 200*time.Millisecond))
	now := int64(1e12)
	c := newCounter("k", r, 0, link, now)
	if linked {
		c.Shard(func(string) int { return 1 })
	}
	for range 600 {
		now += rng.Int64N(1 << rng.IntN(25))
		switch rng.IntN(40) {
		case 0:
			c.refund(now, 1+rng.Int64N(3), r)
		case 1:
			if linked {
				link.SetMode(rng.Int64N(4)-1, rng.IntN(2) == 0)
			}
		case 2:
			if linked {
				link.Part(1).SetOffset(rng.Int64N(1e9), 1)
				c.Unsynced() // a counter learns of that when it is asked
			}
		case 3:
			if c.alg() == limit.AlgorithmFunnel {
				c.allow(now, 1, larger)
				c.allow(now, 1, r)
			}
		case 4:
			if linked {
				c.renew(now, r, Renewal{Gen: c.gen() + 1, At: now, ServerNow: now})
			} else {
				c.set(now, rng.Int64N(r.Limit()+1), r)
			}
		}
		n := rng.Int64N(3)
		src, no := c.denies(now, n, r)
		allowed, want, _ := c.allow(now, n, r)
		if no && (allowed || src != want) {
			t.Errorf("refused %d unasked as %v; asked: %v, %v", n, src, allowed, want)
		}
		if no {
			denied++
		}
	}
	return denied
}

// A refusal lasts until there may be room again, and not longer than 10 seconds, or
// a lag for a key that is shared.
func TestDenialsEndInTime(t *testing.T) {
	for _, r := range []*limit.Rule{
		funnelRule(t, 1, 1, 5*time.Millisecond), funnelRule(t, 1, 1, 300*time.Millisecond), funnelRule(t, 1, 1, 4*time.Second), funnelRule(t, 1, 1, time.Hour),
		windowRule(t, 1, 5*time.Millisecond, 2), windowRule(t, 1, 4*time.Second, 2), windowRule(t, 1, time.Hour, 2),
	} {
		denialsEnd(t, r, nil, 10*time.Second)
		link := newTestLink()
		denialsEnd(t, r, link, time.Duration(link.pace.lag(r)))
	}
}

func denialsEnd(t *testing.T, r *limit.Rule, link *Link, most time.Duration) {
	now := int64(1e12)
	c := newCounter("k", r, 0, link, now)
	c.allow(now, 1, r)
	c.allow(now, 1, r)
	retry, _ := c.peek(now, 1, r)
	c.allow(now, 1, r)
	end := now + int64(min(retry.RetryAfter, most)) // as the README says
	if _, no := c.denies(end, 1, r); no {
		t.Errorf("%v: refuses after %v", r, retry.RetryAfter)
	}
	if _, no := c.denies(end-2*sourceBits, 1, r); !no && r.Algorithm() == limit.AlgorithmFunnel {
		t.Errorf("%v: must be asked before %v", r, retry.RetryAfter)
	}
	if _, no := c.denies(now, 0, r); no {
		t.Errorf("%v: refuses no units", r)
	}
	if _, no := c.denies(now, 1, r.DryRun()); no {
		t.Errorf("%v: refuses another rule", r)
	}
	// From a slot, too, if that is long enough to be worth one.
	slots := NewSlots(link)
	c.Unsynced() // takes the refusal back
	slots.Allow(c, now, r)
	s := c.slot.Load()
	if (s != nil) != (end-now >= refusalLeast) && r.Algorithm() == limit.AlgorithmFunnel {
		t.Fatalf("%v: has a slot: %v", r, s != nil)
	}
	if s == nil {
		return
	}
	early := end - 2*sourceBits
	if link != nil {
		early = now + (end-now)*3/4 // no loan is longer than a lag, from a moment before it
	}
	if r.Algorithm() != limit.AlgorithmFunnel {
		early = now + 1 // the next bucket may make room, and does not here
	}
	for at, want := range map[int64]bool{now: true, early: true, end: false} {
		if allowed, _, ok := slots.lodge.answerKey(s.slot, "k", 0, r, at); allowed || ok != want {
			t.Errorf("%v: a slot refuses %v after now: %v, want %v", r, time.Duration(at-now), ok, want)
		}
	}
}

// During an outage the policy counts at once, also for a key that is refused.
func TestDenialsEndWithTheMode(t *testing.T) {
	rule := slow(1)
	link := newTestLink()
	table := newTable(t, TableOptions{Link: link})
	now := int64(table.clock.Now())
	// A table asks a counter that refuses now and then all the same, see wants: when
	// depends on its seeds.
	c := newCounter("k", rule, 0, link, now)
	for range 2 {
		c.allow(now, 1, rule)
	}
	if _, no := c.denies(now, 1, rule); !no {
		t.Fatal("does not refuse unasked")
	}
	for range 3 {
		table.Allow("k", rule, 1, now)
	}
	if ok, _ := table.Allow("k", rule, 1, now); ok {
		t.Fatal("allowed")
	}
	link.SetMode(WeightOpen, true)
	if src, no := c.denies(now, 1, rule); no {
		t.Errorf("open: refused unasked, %v", src)
	}
	if ok, src := table.Allow("k", rule, 1, now); !ok || src != limit.SourceDegraded {
		t.Errorf("open: %v, %v", ok, src)
	}
	link.SetMode(WeightClosed, true)
	for range 2 {
		if ok, src := table.Allow("k", rule, 1, now); ok || src != limit.SourceDegraded {
			t.Errorf("closed: %v, %v", ok, src)
		}
	}
}
