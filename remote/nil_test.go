package remote

import (
	"context"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// No context is one that does not end.
func TestNoContext(t *testing.T) {
	b := onMini(t)
	l, s := b.limiter(), b.store()
	var noContext context.Context
	for _, rule := range callRules(t) {
		var held *Reservation
		for _, call := range []struct {
			name string
			do   func() error
		}{
			{"Take", func() error { _, err := l.Take(noContext, "k", rule, 1); return err }},
			{"TakeAtMost", func() error { _, _, err := l.TakeAtMost(noContext, "k", rule, 1); return err }},
			{"TakeAll", func() error { _, err := l.TakeAll(noContext, limit.Check{Key: "k", Rule: rule, N: 1}); return err }},
			{"Peek", func() error { _, err := l.Peek(noContext, "k", rule); return err }},
			{"Reserve", func() (err error) { held, err = l.Reserve(noContext, "k", rule); return err }},
			{"Cancel", func() error { return held.Cancel(noContext) }},
			{"Wait", func() error { return l.Wait(noContext, "k", rule) }},
			{"Refund", func() error { _, err := l.Refund(noContext, "k", rule, 1); return err }},
			{"Charge", func() error { _, err := l.Charge(noContext, "k", rule, 1); return err }},
			{"Set", func() error { return l.Set(noContext, "k", rule, 1) }},
			{"Reset", func() error { return l.Reset(noContext, "k", rule) }},
			{"Renew", func() error { _, err := s.Renew(noContext, "k", rule, 1); return err }},
			{"Beat", func() error {
				_, err := s.Beat(noContext, "n1", time.Second, []int{0}, redisstore.BeatOptions{})
				return err
			}},
			{"Exec", func() error {
				out, err := s.Exec(noContext, []*redisstore.Batch{{Node: "n1", Seq: 1, Accept: true}}, nil)
				if err != nil {
					return err
				}
				return out[0].Err
			}},
			{"Leave", func() error { return s.Leave(noContext, "n1", []int{0}) }},
		} {
			if err := call.do(); err != nil {
				t.Errorf("%s of %v: %v", call.name, rule, err)
			}
		}
	}
}
