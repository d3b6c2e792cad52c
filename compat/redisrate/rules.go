package redisrate

import (
	"sync"

	"github.com/hybridlimit/hybridlimit/limit"
)

// maxRules is how many limits a Limiter keeps the rules of. A program may make a Limit for each customer.
const maxRules = 1024

// rules keeps the rules of limits, because to build one for each check takes longer than the check. The zero
// rules is ready for use. It is safe for concurrent use.
type rules struct {
	mu sync.RWMutex          // protects of
	of map[Limit]*limit.Rule // at most maxRules
}

// get returns the rule of a limit. If there are too many it drops any other one: that is built anew when it is
// used again, and goes on with its counters.
func (r *rules) get(l Limit) (*limit.Rule, error) {
	r.mu.RLock()
	rule := r.of[l]
	r.mu.RUnlock()
	if rule != nil {
		return rule, nil
	}
	rule, err := l.rule()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if was := r.of[l]; was != nil {
		return was, nil // another goroutine was faster
	}
	if r.of == nil {
		r.of = map[Limit]*limit.Rule{}
	}
	if len(r.of) >= maxRules {
		for other := range r.of {
			delete(r.of, other)
			break
		}
	}
	r.of[l] = rule
	return rule, nil
}

// counters returns one rule for each counter that a key may have: limits that differ in the burst share one.
func (r *rules) counters() (list []*limit.Rule) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	seen := make(map[string]bool, len(r.of))
	for _, rule := range r.of {
		if !seen[rule.Name()] {
			seen[rule.Name()] = true
			list = append(list, rule)
		}
	}
	return list
}
