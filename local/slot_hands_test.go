package local

import (
	"runtime"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// A slot that gets another tenant after a check has looked at it, and before that has the
// lock, does not answer: neither for the key, nor for its counter.
func TestSlotsThatChangeHands(t *testing.T) {
	rule := limit.Must(limit.Funnel("hands", 1<<30, 1000, time.Second))
	for how, ask := range map[string]func(l *lodge, s *slot, c *Counter, now int64) bool{
		"by name": func(l *lodge, s *slot, c *Counter, now int64) bool {
			_, _, ok := l.answer(s, signOf(c.Key()), rule, now)
			return ok
		},
		"bound": func(l *lodge, s *slot, c *Counter, now int64) bool {
			_, _, ok := l.answerFor(s, c, rule, now)
			return ok
		},
		"taken": func(l *lodge, s *slot, c *Counter, now int64) bool {
			_, ok := l.take(s, nil, signOf(c.Key()), rule, now, true)
			return ok
		},
		"taken, bound": func(l *lodge, s *slot, c *Counter, now int64) bool {
			_, ok := l.take(s, c, sign{}, rule, now, true)
			return ok
		},
	} {
		for _, to := range []string{"key2", "longer"} { // the label is the same, or is not
			table := newTable(t, TableOptions{})
			now := int64(table.clock.Now())
			s := tenant(t, table, "key1", rule)
			mine, other := s.c.Load(), newCounter(to, rule, 0, nil, now)
			left := s.left
			s.mu.Lock()
			answered := make(chan bool)
			go func() { answered <- ask(&table.lodge, s, mine, now) }()
			for range 1000 { // time enough to look; if it is not, it sees what is there now
				runtime.Gosched()
			}
			k := signOf(to)
			was := label(s.label.Load())
			s.c.Store(other)
			s.ends[0].Store(k.first)
			s.ends[1].Store(k.last)
			s.label.Store(uint64(newLabel(0, was.law(), was.source(), k.rest)))
			s.mu.Unlock()
			if <-answered || s.left != left {
				t.Errorf("%s: a slot that is now of %q has answered", how, to)
			}
			s.mu.Lock()
			s.c.Store(mine) // takes back what it has lent
			s.mu.Unlock()
		}
	}
}
