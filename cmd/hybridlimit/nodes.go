package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/screen"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// nodesCmd lists the live nodes.
type nodesCmd struct {
	redisFlags
}

// liveJSON is a node, or a layout, for programs.
type liveJSON struct {
	Name string  `json:"name"`
	Left float64 `json:"gone_in_seconds"`
}

// nodesJSON is the list for programs.
type nodesJSON struct {
	Count   int        `json:"count"`
	Nodes   []liveJSON `json:"nodes"`
	Layouts []liveJSON `json:"layouts"` // in use, which share no limits with each other
	Layout  string     `json:"layout"`  // that was looked at
	Time    string     `json:"redis_time"`
}

// Run lists them.
func (c *nodesCmd) Run(p *program) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	defer s.Close()
	fleet, err := s.survey.Fleet(p.ctx)
	if err != nil {
		return s.failed(err)
	}
	layout := s.survey.Keyspace().Layout()
	if p.JSON {
		now := time.Unix(0, int64(fleet.Now)).UTC().Format(time.RFC3339Nano)
		return p.Object(nodesJSON{fleet.Nodes, livesOf(fleet.List), livesOf(fleet.Layouts), layout, now})
	}
	if err := p.showNodes(fleet, layout); err != nil {
		return err
	}
	p.warnOfLayout(s)
	return nil
}

func livesOf(list []redisstore.Live) []liveJSON {
	out := []liveJSON{}
	for _, l := range list {
		out = append(out, liveJSON{l.Name, l.Left.Seconds()})
	}
	return out
}

func (p *program) showNodes(fleet redisstore.Fleet, layout string) error {
	if len(fleet.List) > 0 {
		t := &screen.Table{Columns: []screen.Column{{Title: "NODE", Least: 20}, {Title: "GONE UNLESS HEARD IN", Right: true}}}
		for _, n := range fleet.List {
			t.Add(screen.Clean(n.Name), screen.Wait(n.Left))
		}
		if err := p.Table(t); err != nil {
			return err
		}
	}
	texts := []string{fmt.Sprintf("%s of %s.", screen.Many(int64(fleet.Nodes), "node", "nodes"), layout)}
	if more := fleet.Nodes - len(fleet.List); more > 0 {
		texts = append(texts, fmt.Sprintf("%s of them are not listed.", screen.Count(int64(more))))
	}
	for _, l := range fleet.Layouts {
		if l.Name != layout {
			texts = append(texts, fmt.Sprintf("Others use %s, and share no limits with these.", screen.Clean(l.Name)))
		}
	}
	return p.Line(screen.Faint, 2, "%s", strings.Join(texts, " "))
}
