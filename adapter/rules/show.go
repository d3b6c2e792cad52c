package rules

import (
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// The methods in this file are what package adminlimit shows of a file.

// Path returns the name of the file, as it was given to [Watch].
func (f *File) Path() string { return f.path }

// InForce returns the text of the rules in force, and since when they are, by Options.Clock.
func (f *File) InForce() (text string, since time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Set().source.text, f.stats.LastLoad
}

// OnDisk reads the text of the file as it is now. If that was refused, problem says why, and line where
// the first mistake is. It is empty for a file that has changed and was not read yet.
func (f *File) OnDisk() (text, problem string, line int) {
	f.mu.Lock()
	problem, line = f.stats.LastError, f.badLine
	f.mu.Unlock()
	is, err := f.read(f.abs)
	if err != nil && problem == "" {
		problem, line = unreadable(f.path, err).Error(), 1
	}
	return string(is), problem, line
}

// CounterKey is [Set.CounterKey] of the rules in force.
func (f *File) CounterKey(name, key string) (string, error) { return f.Set().CounterKey(name, key) }

// Names returns the names of the rules in force, in order.
func (f *File) Names() []string { return f.Set().Names() }

// Lookup returns the rule by which a key is decided, like [Set.ForPlan] or, without a plan, [Set.For],
// and says which entry of the file it is of. The rule is nil if there is no such rule or plan.
func (f *File) Lookup(name, plan, key string) (rule *limit.Rule, says string) {
	return f.Set().lookup(name, plan, key)
}

func (s *Set) lookup(name, planName, key string) (rule *limit.Rule, says string) {
	r := s.rules[name]
	if r == nil {
		return nil, ""
	}
	if rule, o := s.said(name, r, &Request{Key: key}); rule != nil {
		of := s.about(o, key)
		switch {
		case o.rules[name] == nil && o.blocked:
			of += ": blocked"
		case o.rules[name] == nil && o.unlimited:
			of += ": unlimited"
		case o.rules[name] == nil && o.plan != nil:
			of += ", which has the plan " + o.plan.name
		}
		return rule, of
	}
	if planName == "" {
		return r.rule, "rule " + name
	}
	p := s.plans[planName]
	if p == nil {
		return nil, ""
	}
	if rule := p.rules[name]; rule != nil {
		return rule, "plan " + planName
	}
	return r.rule, fmt.Sprintf("rule %s, about which the plan %s says nothing", name, planName)
}
