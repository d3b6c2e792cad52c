package main

import (
	"errors"
	"fmt"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/screen"
	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/internal/inspect"
	"github.com/hybridlimit/hybridlimit/limit"
)

// quarantinedCmd lists keys that limiters cannot use.
type quarantinedCmd struct {
	Scan int64 `default:"20000" placeholder:"KEYS" help:"Look at about so many keys of Redis at most."`
	redisFlags
}

// broken is a key of the limiter that holds something else.
type broken struct {
	Name   string `json:"name"` // in Redis
	Key    string `json:"key,omitempty"`
	Exact  string `json:"name_exact,omitempty"` // the name in quotes as in Go, if JSON cannot have it as it is
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason"`
}

// quarantinedJSON is the list for programs.
type quarantinedJSON struct {
	Keys     []broken `json:"keys"`
	More     int64    `json:"more"` // that are not listed
	Scanned  int64    `json:"scanned"`
	Total    int64    `json:"total"`
	Complete bool     `json:"complete"`
	Counters int64    `json:"counters"`
}

// Run scans and lists. What it finds is what makes a node set a key aside: which of them
// have met it, Redis does not know.
func (c *quarantinedCmd) Run(p *program) error {
	if c.Scan < 1 || c.Scan > mostScanned {
		return usage(fmt.Errorf("--scan is %d, must be 1 to %d", c.Scan, mostScanned))
	}
	s, err := c.open()
	if err != nil {
		return err
	}
	defer s.Close()
	out := quarantinedJSON{Keys: []broken{}}
	var key *limit.KeyError
	if _, err := s.survey.Fleet(p.ctx); errors.As(err, &key) {
		out.Keys = append(out.Keys, broken{Name: key.Key, Exact: escape.Exact(key.Key), Reason: key.Reason})
	} else if err != nil {
		return s.failed(err)
	}
	scanned, err := s.survey.Scan(p.ctx, c.Scan, func(names []inspect.Name) error { return out.add(p, s, names) })
	if err != nil {
		return s.failed(err)
	}
	out.Scanned, out.Total, out.Complete, out.Counters = scanned.Keys, scanned.Total, scanned.Complete, scanned.Counters
	if err := p.showBroken(out); err != nil {
		return err
	}
	if len(out.Keys) > 0 {
		return found
	}
	return nil
}

// add looks at counters, by the scripts that use them.
func (q *quarantinedJSON) add(p *program, s *store, names []inspect.Name) error {
	looks := make([]inspect.Look, len(names))
	for i, n := range names {
		looks[i] = inspect.Look{Name: n, Rule: n.AnyRule()}
	}
	for i, seen := range s.survey.Peek(p.ctx, looks) {
		var key *limit.KeyError
		switch {
		case seen.Err == nil:
		case !errors.As(seen.Err, &key):
			return seen.Err
		case len(q.Keys) >= mostListed:
			q.More++
		default:
			q.Keys = append(q.Keys, broken{names[i].Text, keyOf(names[i]), escape.Exact(names[i].Text), names[i].Rule, key.Reason})
		}
	}
	return nil
}

func (p *program) showBroken(q quarantinedJSON) error {
	if p.JSON {
		return p.Object(q)
	}
	if len(q.Keys) > 0 {
		t := &screen.Table{Columns: []screen.Column{{Title: "NAME IN REDIS", Least: 30, Tell: true}, {Title: "REASON", Least: 20}}}
		for _, b := range q.Keys {
			t.Rows = append(t.Rows, []screen.Cell{{Text: escape.Distinct(b.Name)}, {Text: screen.Clean(b.Reason), Style: screen.Bad}})
		}
		if err := p.Table(t); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("%s cannot be used. Looked at %s of Redis: %s.", screen.Many(int64(len(q.Keys))+q.More, "key", "keys"),
		lookedAt(inspect.Scanned{Keys: q.Scanned, Total: q.Total, Complete: q.Complete}), screen.Many(q.Counters, "counter", "counters"))
	if len(q.Keys) > 0 {
		text += " Another program has written these keys: find it, and DEL them. Limiters set each aside, try it again every 5 s, and tell anew what they counted."
	}
	return p.Line(screen.Faint, 2, "%s", text)
}
