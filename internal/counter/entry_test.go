package counter

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// A counter that moves takes its lease along, with what that has admitted. A check that has
// read the word of the old entry before cannot swap it any more: its unit would be lost.
func TestMoveToTakesTheLeaseAlong(t *testing.T) {
	for _, r := range []*limit.Rule{limit.Must(limit.TokenBucket("bucket", 1, time.Hour, 10)), windowRule(t, 10, time.Hour, 10)} {
		now := start.UnixNano()
		c := NewAlone("k", r, nil, now)
		for range 3 {
			c.Allow(now, 1, r)
		}
		old, to := c.entry, new(Entry)
		before := old.word.Load()
		c.MoveTo(to)
		if old.word.CompareAndSwap(before, before) {
			t.Errorf("%v: the old entry still admits", r)
		}
		if old.Counter() != c || old.Print() != alonePrint {
			t.Errorf("%v: the old entry does not lead to the counter", r)
		}
		if c.Entry() != to || to.Counter() != c || to.Print() != alonePrint || to.word.Load() != before {
			t.Errorf("%v: the new entry has another word", r)
		}
		for range 7 {
			if allowed, _, _, _ := c.Allow(now, 1, r); !allowed {
				t.Errorf("%v: refused what is left", r)
			}
		}
		if allowed, _, _, _ := c.Allow(now+int64(time.Millisecond), 1, r); allowed {
			t.Errorf("%v: admitted more than the limit", r)
		}
	}
}

// A counter that leaves its entry keeps what its lease has admitted, also if it gets no other.
func TestMoveKeepsWhatALeaseAdmitted(t *testing.T) {
	for _, r := range []*limit.Rule{limit.Must(limit.TokenBucket("bucket", 1, time.Hour, 10)), windowRule(t, 10, time.Hour, 10)} {
		for name, enter := range map[string]func(*Counter){
			"out of the entry": func(*Counter) {},
			"to another":       func(c *Counter) { c.Enter(new(Entry), alonePrint) },
		} {
			now := start.UnixNano()
			c := NewAlone("k", r, nil, now)
			for range 3 {
				c.Allow(now, 1, r)
			}
			old := c.entry
			c.Move(now, func() { enter(c) })
			if old.Counter() != nil || old.Print() != 0 || unitsOf(old.word.Load()) != 0 {
				t.Errorf("%v, %s: the old entry is not free", r, name)
			}
			admitted := 0
			for range 20 {
				if res, _ := c.take(now, 1, r); res.Allowed {
					admitted++
				}
			}
			if admitted != 7 {
				t.Errorf("%v, %s: %d admitted of the 7 left", r, name, admitted)
			}
		}
	}
}
