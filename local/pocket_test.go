package local

import (
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A counter that lends to who asks it decides as one that does not.
func TestPocketsAreTheSame(t *testing.T) { theSame(t, true) }

// allowOne is a check of one unit as bound keys make it, and whether the table counts it.
func (h *Handle) allowOne(r clock.Clock) (allowed, counted bool) {
	switch v, _ := h.Answer(r); v {
	case Admitted:
		return true, true
	case Refused:
		return false, false
	}
	allowed, _, counted = h.AllowBy(r, 1)
	return allowed, counted
}

// boundKey returns a handle with a pocket, and its clock.
func boundKey(table *Table, key string, rule *limit.Rule) (*Handle, clock.Clock) {
	r := clock.Forward(table.clock)
	h := new(Handle)
	h.Bind(table, key, rule)
	h.By(r)
	return h, r
}

// Who binds a key is soon answered by what its counter has lent to the handle, for a key
// of any length and for more units than one loan has, and all that is counted.
func TestPocketsAnswer(t *testing.T) {
	for _, rule := range []*limit.Rule{funnelRule(t, 10_000, 1, time.Second), windowRule(t, 10_000, time.Hour, 10), limit.Must(limit.FixedWindow("r", 10_000, time.Hour))} {
		for _, key := range []string{"", "k", strings.Repeat("k", inlineKey+1), strings.Repeat("k", behindKey+1)} {
			table := newTable(t, TableOptions{Clock: clock.NewManual(start)})
			h, r := boundKey(table, key, rule)
			answered, counted := 0, int64(0)
			for i := range rule.Limit() {
				if h.c.Load() != nil && h.c.Load().lentTo() == &h.pocket {
					answered++
				}
				allowed, by := h.allowOne(r)
				if !allowed {
					t.Fatalf("%v: unit %d is refused", rule, i+1)
				}
				if by {
					counted++
				}
				if i%997 == 0 && table.Admitted()[limit.SourceLocal] != counted {
					t.Fatalf("%v: counts %d of %d", rule, table.Admitted()[limit.SourceLocal], counted)
				}
			}
			if answered < int(rule.Limit())*99/100 || counted < int64(answered)-10 {
				t.Errorf("%v, %d bytes: %d of %d checks by a pocket, %d counted", rule, len(key), answered, rule.Limit(), counted)
			}
			for range 100 {
				if allowed, by := h.allowOne(r); allowed || by {
					t.Fatalf("%v: one unit more", rule)
				}
			}
			if v, src := h.Answer(r); v != Refused || src != limit.SourceLocal {
				t.Errorf("%v: is not refused by the pocket: %v as %v", rule, v, src)
			}
			if got := table.Admitted()[limit.SourceLocal]; got != counted {
				t.Errorf("%v: counts %d of %d in the end", rule, got, counted)
			}
			if left := table.Peek(key, rule, 1, int64(r.Now())).Remaining; left != 0 {
				t.Errorf("%v: %d units remain", rule, left)
			}
		}
	}
}

// Take and Peek are answered from a pocket, too, with all that there is to say.
func TestPocketsTellAll(t *testing.T) {
	rule := funnelRule(t, 1000, 1, time.Minute)
	hands := clock.NewManual(start)
	table := newTable(t, TableOptions{Clock: hands})
	h, r := boundKey(table, "k", rule)
	const before = 10
	for range before {
		h.allowOne(r)
	}
	c := h.c.Load()
	for i := range int64(20) {
		now := int64(r.Now())
		left := rule.Limit() - before - i
		if got, want := h.Peek(1, now), (limit.Result{Allowed: true, Limit: 1000, Remaining: left, ResetAfter: time.Duration(before+i) * time.Minute}); got != want {
			t.Errorf("peek: %+v, want %+v", got, want)
		}
		got, ok := h.TakeFromSlot(1, now)
		if want := (limit.Result{Allowed: true, Limit: 1000, Remaining: left - 1, ResetAfter: time.Duration(before+i+1) * time.Minute}); !ok || got != want {
			t.Errorf("take: %+v (%v), want %+v", got, ok, want)
		}
		if c.lentTo() != &h.pocket {
			t.Fatal("the loan is gone")
		}
	}
	now := int64(r.Now())
	if _, ok := h.TakeFromSlot(2, now); ok {
		t.Error("a pocket answers for two units")
	}
	if res := h.TakeAt(rule.Limit(), now); res.Allowed || res.Remaining != rule.Limit()-before-20 {
		t.Errorf("asked for more than there are: %+v", res)
	}
	if left := h.Peek(2, now).Remaining; left != rule.Limit()-before-20 {
		t.Errorf("%d remain", left)
	}
}

// A key that was asked for by its name and has found no slot lends to who binds it, and
// does not wait for as many answers as until it would look for a slot again.
func TestPocketsOfKeysWithoutSlots(t *testing.T) {
	rule := funnelRule(t, 1000, 1, time.Second)
	for names := range 2 * 32 {
		table := newTable(t, TableOptions{Clock: clock.NewManual(start)})
		tenants := table.lodge.rows.Load().tenants
		for i := range tenants {
			tenants[i].mu.Lock()
		}
		for range names + 1 {
			table.Allow("k", rule, 1, start.UnixNano())
		}
		h, r := boundKey(table, "k", rule)
		for range 5 {
			h.allowOne(r)
		}
		if c := h.c.Load(); c.lentTo() != &h.pocket {
			t.Errorf("asked by name %d times: has lent to %p", names+1, c.lentTo())
		}
		for i := range tenants {
			tenants[i].mu.Unlock()
		}
	}
}

// A key that is bound anew for each check has a slot as soon as one that is asked by name.
func TestHandlesOfAMomentGetASlot(t *testing.T) {
	rule := funnelRule(t, 1000, 1, time.Second)
	table := newTable(t, TableOptions{Clock: clock.NewManual(start)})
	for range 5 {
		h, _ := boundKey(table, "k", rule)
		h.Allow(1, start.UnixNano())
	}
	if slotOf(table, "k", rule) == nil {
		t.Error("no slot after 5 checks")
	}
}

// Two who have bound the same key, or one and who asks by its name, share a slot, whoever
// asks more often; and when the other has gone, the pocket has its loan again.
func TestPocketsAreShared(t *testing.T) {
	rule := funnelRule(t, 1<<30, 1_000_000, time.Second)
	for _, byName := range []bool{false, true} {
		for _, more := range []int{1, 7, 100} {
			hands := clock.NewManual(start)
			table := newTable(t, TableOptions{Clock: hands})
			h, r := boundKey(table, "k", rule)
			other, _ := boundKey(table, "k", rule)
			for range 10 {
				h.allowOne(r)
			}
			if c := h.c.Load(); c == nil || c.lentTo() != &h.pocket {
				t.Fatal("has no loan")
			}
			before := table.Stats().Live
			returned := 0
			for range 100 {
				c := h.c.Load()
				for range more {
					was := c.slot.Load() != nil || c.lentTo() != nil
					h.allowOne(r)
					if was && c.slot.Load() == nil && c.lentTo() == nil {
						returned++
					}
				}
				was := c.slot.Load() != nil || c.lentTo() != nil
				if byName {
					table.Allow("k", rule, 1, int64(r.Now()))
				} else {
					other.allowOne(r)
				}
				if was && c.slot.Load() == nil && c.lentTo() == nil {
					returned++
				}
			}
			c := h.c.Load()
			if c.slot.Load() == nil || returned > 4 || table.Stats().Live != before {
				t.Errorf("by name %v, %d times as often: taken back %d times, slot %v", byName, more, returned, c.slot.Load() != nil)
			}
			hands.Advance(3 * trialLasts)
			for range 10 {
				h.allowOne(r)
			}
			if c.lentTo() != &h.pocket {
				t.Errorf("by name %v, %d times as often: has no loan again", byName, more)
			}
		}
	}
}

// A loan is over when it says so, and in another season; then nothing has happened.
func TestPocketsEnd(t *testing.T) {
	funnel, window := funnelRule(t, 1<<30, 1_000_000, time.Second), windowRule(t, 1<<30, time.Minute, 10)
	hour := windowRule(t, 1<<30, time.Hour, 10)
	refresh := 5 * time.Second
	for what, end := range map[string]struct {
		rule  *limit.Rule
		ended func(table *Table, hands *clock.Manual)
	}{
		"season":               {funnel, func(table *Table, _ *clock.Manual) { table.lodge.season.turn() }},
		"another weight":       {funnel, func(table *Table, _ *clock.Manual) { table.link.SetMode(2, true) }},
		"refresh":              {funnel, func(_ *Table, hands *clock.Manual) { hands.Advance(refresh) }},
		"refresh, of a window": {hour, func(_ *Table, hands *clock.Manual) { hands.Advance(refresh) }},
		"the end of a bucket":  {window, func(_ *Table, hands *clock.Manual) { hands.Advance(2 * time.Second) }},
		"by its name":          {funnel, func(table *Table, hands *clock.Manual) { table.Allow("k", funnel, 2, int64(hands.Now())) }},
		"refund":               {funnel, func(table *Table, hands *clock.Manual) { table.Refund("k", funnel, 1, int64(hands.Now())) }},
		"two units":            {funnel, nil},
	} {
		hands := clock.NewManual(start.Truncate(6 * time.Second).Add(4 * time.Second))
		link := NewLink(pace(refresh), 4)
		table := newTable(t, TableOptions{Clock: hands, Link: link})
		link.Part(1).SetOffset(0, 1)
		h, r := boundKey(table, "k", end.rule)
		h.allowOne(r)
		c := h.c.Load()
		c.Shard(func(string) int { return 1 })
		for range 60 {
			h.allowOne(r)
		}
		if c.lentTo() != &h.pocket {
			t.Fatalf("%s: no loan", what)
		}
		if end.ended == nil {
			h.AllowBy(r, 2)
		} else {
			end.ended(table, hands)
		}
		before := h.word.Load()
		if v, _ := h.Answer(r); v != Unanswered || h.word.Load() != before {
			t.Errorf("%s: %v after the end, from %x to %x", what, v, before, h.word.Load())
		}
		if allowed, _ := h.allowOne(r); !allowed {
			t.Errorf("%s: refused", what)
		}
	}
}

// Not all can lend to a handle: funnels whose times have no room in a word go to no slot
// either, and under a clock that may go back they go to slots.
func TestPocketsAreNotForAll(t *testing.T) {
	table := newTable(t, TableOptions{})
	const month = 30 * 24 * time.Hour
	for _, quota := range []struct {
		rule  *limit.Rule
		lends bool
	}{
		{limit.Must(limit.Funnel("quota", 1000, 1000, month)), true},
		{limit.Must(limit.Funnel("quotas", 700, 7, month)), true},
		{limit.Must(limit.Funnel("odd quota", 1000, 1, month/1000+1)), false},
	} {
		h, r := boundKey(table, "k", quota.rule)
		for range 20 {
			h.allowOne(r)
		}
		if c := h.c.Load(); (c.lentTo() != nil) != quota.lends || c.slot.Load() != nil {
			t.Errorf("%v has lent to its handle: %v", quota.rule, c.lentTo() != nil)
		}
		for range 60 {
			table.Allow("other", quota.rule, 1, int64(r.Now()))
		}
		if got := slotOf(table, "other", quota.rule) != nil; got != quota.lends {
			t.Errorf("%v has a slot: %v", quota.rule, got)
		}
		if left := table.Peek("k", quota.rule, 1, int64(r.Now())).Remaining; left != quota.rule.Limit()-20 {
			t.Errorf("%v: %d units remain after 20", quota.rule, left)
		}
	}
	unsteady := clock.NewManual(start)
	var back Handle
	back.Bind(table, "b", funnelRule(t, 1000, 1, time.Second))
	back.By(unsteady)
	for range 20 {
		back.allowOne(unsteady)
	}
	if c := back.c.Load(); c.lentTo() != nil || c.slot.Load() == nil {
		t.Error("a clock that may go back")
	}
	var zero Handle
	if v, _ := zero.Answer(unsteady); v != Unanswered {
		t.Error("a handle of nothing answers")
	}
}

// Whatever is asked at the same time, each unit is counted once, and the table can say at
// any time how many pockets and slots have admitted: never fewer than before.
func TestPocketsUnderFire(t *testing.T) {
	rule := limit.Must(limit.Funnel("fire", 30_000, 1, time.Second))
	table := newTable(t, TableOptions{})
	const keys = 6
	var admitted [keys]atomic.Int64
	var counted atomic.Int64
	var handles [keys][2]*Handle
	r := clock.Forward(clock.NewManual(start))
	for k := range handles {
		for i := range handles[k] {
			handles[k][i], _ = boundKey(table, fireKey(k), rule)
		}
	}
	stop := make(chan struct{})
	var wg, watch sync.WaitGroup
	watch.Go(func() {
		for last := int64(0); ; {
			now := table.Admitted()[limit.SourceLocal]
			if now < last {
				t.Errorf("%d admitted, after %d", now, last)
			}
			last = now
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for g := range 6 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 4))
			for range 60_000 {
				k := rng.IntN(keys)
				h, key := handles[k][rng.IntN(40)/39], fireKey(k)
				now, ok, by, n := int64(r.Now()), false, false, int64(1)
				switch rng.IntN(300) {
				case 0:
					ok = h.TakeAt(1, now).Allowed
				case 1:
					n = 3
					ok, _, by = h.AllowBy(r, n)
				case 2:
					n, ok = -table.Refund(key, rule, 1, now), true
				case 3:
					table.lodge.season.turn()
				case 4:
					h.Peek(2, now)
				case 5, 6:
					ok, _, by = table.AllowBy(r, key, rule, 1)
				case 7, 8, 9, 10, 11:
					var res limit.Result
					if res, by = h.TakeFromSlot(1, now); by {
						ok = res.Allowed
					}
				case 12:
					h.tried.Store(0)
				default:
					ok, by = h.allowOne(r)
				}
				if ok {
					admitted[k].Add(n)
					if by {
						counted.Add(n)
					}
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	watch.Wait()
	for k := range admitted {
		used := rule.Limit() - table.Peek(fireKey(k), rule, 2, int64(r.Now())).Remaining
		if got := admitted[k].Load(); got != used || got > rule.Limit() {
			t.Errorf("key %d: %d units admitted, %d counted", k, got, used)
		}
	}
	if got := table.Admitted()[limit.SourceLocal]; got != counted.Load() {
		t.Errorf("%d admitted by slots and pockets, %d by count", got, counted.Load())
	}
	pockets := int64(0)
	for i := range table.lodge.groups {
		pockets += table.lodge.groups[i].admitted[limit.SourceLocal]
	}
	if pockets == 0 {
		t.Error("nothing admitted by pockets")
	}
}

// A check that has found nothing on loan, and comes when another one of the same handle has
// borrowed meanwhile, does not take that back: it is answered by it.
func TestPocketsAreNotTakenBackByTheirOwn(t *testing.T) {
	rule := funnelRule(t, 1000, 1, time.Second)
	table := newTable(t, TableOptions{Clock: clock.NewManual(start)})
	h, r := boundKey(table, "k", rule)
	for range 10 {
		h.allowOne(r)
	}
	c, now := h.c.Load(), int64(r.Now())
	for _, late := range []int64{0, 1000} { // its reading of the clock may be older than the loan
		v, _ := h.claim(c, 1, now-late)
		if v != Admitted || c.lentTo() != &h.pocket || !c.mu.TryLock() {
			t.Errorf("%d ns late: %v, %v on loan", late, v, c.lentTo())
		}
		c.mu.Unlock()
	}
	if v, _ := h.claim(c, 2, now); v != Unanswered || c.lentTo() != nil || c.mu.TryLock() {
		t.Errorf("two units: %v, %v on loan", v, c.lentTo())
	}
	if left := c.funnel.pend.units; left != 12 {
		t.Errorf("%d units after 12", left)
	}
	c.mu.Unlock()
}

// Each unit that a pocket has is one that somebody is told of, however its loans come and go
// while checks are interrupted.
func TestPocketsAdmitAll(t *testing.T) {
	const most = 600_000
	rule := limit.Must(limit.FixedWindow("r", most, 24*time.Hour))
	for range 20 {
		table := newTable(t, TableOptions{Clock: clock.NewManual(start)})
		h, r := boundKey(table, "k", rule)
		var admitted, counted atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range most / 3 {
					ok, by := h.allowOne(r)
					if ok {
						admitted.Add(1)
					}
					if by {
						counted.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if sum := table.Admitted()[limit.SourceLocal]; admitted.Load() != most || sum != counted.Load() {
			t.Fatalf("%d of %d admitted; %d by the pocket, which has counted %d", admitted.Load(), most, counted.Load(), sum)
		}
	}
}

// Who asks a handle for the first time while others do is not taken for somebody else, nor
// is who only peeks.
func TestPocketsAreNotContestedByTheirOwn(t *testing.T) {
	rule := funnelRule(t, 1<<30, 1_000_000, time.Second)
	for range 100 {
		hands := clock.NewManual(start)
		table := newTable(t, TableOptions{Clock: hands})
		h, r := boundKey(table, "k", rule)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 200 {
					h.allowOne(r)
				}
			})
		}
		wg.Wait()
		table.Peek("k", rule, 2, int64(r.Now()))
		if h.isContested(int64(r.Now())) {
			t.Fatal("contested by nobody")
		}
	}
}

// A funnel knows, as well as can be, when its handle was asked last.
func TestPocketsKnowTheTime(t *testing.T) {
	rule := funnelRule(t, 10, 10, time.Second)
	hands := clock.NewManual(start)
	table := newTable(t, TableOptions{Clock: hands})
	h, r := boundKey(table, "k", rule)
	for range 5 {
		h.allowOne(r)
	}
	late := hands.Advance(10 * time.Second)
	for range 6 {
		h.allowOne(r)
	}
	c := h.c.Load()
	c.lock()
	last := time.Duration(c.last)
	c.mu.Unlock()
	if last > late || last < late-time.Second {
		t.Errorf("asked last %v before it was", late-last)
	}
}
