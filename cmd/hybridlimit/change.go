package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/limit"
)

// resetCmd forgets what keys have used.
type resetCmd struct {
	Keys []string `arg:"" name:"key" help:"Keys, as limiters are asked for them."`
	ruleFlags
	redisFlags
}

// Run resets the keys and shows them.
func (c *resetCmd) Run(p *program) error {
	return p.change(c.redisFlags, c.ruleFlags, c.Keys, 0)
}

// setCmd sets what a key has used.
type setCmd struct {
	Key  string `arg:"" help:"Key, as limiters are asked for it."`
	Used int64  `arg:"" help:"Units that it has used, 0 or more; more than the limit is a debt."`
	ruleFlags
	redisFlags
}

// Run sets the key and shows it.
func (c *setCmd) Run(p *program) error {
	if c.Used < 0 || c.Used > arith.MaxUnits {
		return usage(fmt.Errorf("%d units: must be 0 to %d", c.Used, int64(arith.MaxUnits)))
	}
	return p.change(c.redisFlags, c.ruleFlags, []string{c.Key}, c.Used)
}

// change makes used units of each key count.
func (p *program) change(where redisFlags, which ruleFlags, keys []string, used int64) error {
	keys, list, err := which.counters(keys...)
	if err != nil {
		return err
	}
	for i, rule := range list {
		if rule == limit.Unlimited() {
			return usage(fmt.Errorf("%s is unlimited by %s: nothing is counted", escape.Quote(keys[i]), which.Rule))
		}
	}
	s, err := where.open()
	if err != nil {
		return err
	}
	defer s.Close()
	p.warnOfLayout(s, prefixScan)
	for i, key := range keys {
		if err := s.lim.Set(p.ctx, key, list[i], used); err != nil {
			if i > 0 {
				fmt.Fprintf(p.errOut, "hybridlimit: %d of %d keys were changed\n", i, len(keys))
			}
			return s.failed(err)
		}
	}
	looks, err := p.looks(s, keys, list)
	if err != nil {
		return err
	}
	return p.show(looks)
}

// sorted returns the members of a set in order.
func sorted(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
