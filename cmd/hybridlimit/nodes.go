package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/screen"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// nodesCmd lists the live nodes.
type nodesCmd struct {
	redisFlags
}

// liveJSON is a layout for programs.
type liveJSON struct {
	Name string  `json:"name"`
	Left float64 `json:"gone_in_seconds"`
}

// nodeJSON is a node for programs: its id as the name, and what it says about itself.
type nodeJSON struct {
	liveJSON
	About *redisstore.About `json:"about,omitempty"` // nil: nothing, as older versions
}

// nodesJSON is the list for programs.
type nodesJSON struct {
	Count   int        `json:"count"`
	Nodes   []nodeJSON `json:"nodes"`
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
		return p.Object(nodesJSON{fleet.Nodes, nodesOf(fleet.List), livesOf(fleet.Layouts), layout, now})
	}
	if err := p.showNodes(fleet, layout); err != nil {
		return err
	}
	p.warnOfLayout(s, prefixScan)
	return nil
}

func livesOf(list []redisstore.Live) []liveJSON {
	out := []liveJSON{}
	for _, l := range list {
		out = append(out, liveJSON{l.Name, l.Left.Seconds()})
	}
	return out
}

func nodesOf(list []redisstore.Live) []nodeJSON {
	out := []nodeJSON{}
	for i := range list {
		n := nodeJSON{liveJSON: liveJSON{list[i].Name, list[i].Left.Seconds()}}
		if list[i].About != (redisstore.About{}) {
			n.About = &list[i].About
		}
		out = append(out, n)
	}
	return out
}

func (p *program) showNodes(fleet redisstore.Fleet, layout string) error {
	if len(fleet.List) > 0 {
		t := &screen.Table{Columns: []screen.Column{{Title: "NODE", Least: 20}, {Title: "VERSION", Least: 8}, {Title: "MODE"},
			{Title: "FOR", Right: true}, {Title: "LAG", Right: true}, {Title: "OUTAGE"}, {Title: "GONE IN", Right: true}}}
		for _, n := range fleet.List {
			t.Add(rowOf(n, fleet.Now)...)
		}
		if err := p.Table(t); err != nil {
			return err
		}
	}
	texts := []string{fmt.Sprintf("%s of %s.", screen.Many(int64(fleet.Nodes), "node", "nodes"), layout)}
	if more := fleet.Nodes - len(fleet.List); more > 0 {
		texts = append(texts, fmt.Sprintf("%s of them are not listed.", screen.Count(int64(more))))
	}
	if programs := programsOf(fleet.List); len(programs) > 1 {
		texts = append(texts, fmt.Sprintf("Several programs use this prefix, and share limits of one name: %s.", quoted(programs)))
	}
	for _, l := range fleet.Layouts {
		if l.Name != layout {
			texts = append(texts, fmt.Sprintf("Others use %s, and share no limits with these.", screen.Clean(l.Name)))
		}
	}
	return p.Line(screen.Faint, 2, "%s", strings.Join(texts, " "))
}

// rowOf returns what is shown of a node: its name, or its id if it says nothing more.
func rowOf(n redisstore.Live, now time.Duration) []string {
	a := n.About
	row := []string{screen.Clean(cmp.Or(a.Name, n.Name)), screen.Clean(a.Version), screen.Clean(a.Mode), "", "", "", screen.Wait(n.Left)}
	if a.Since > 0 {
		row[3] = screen.Wait(now.Truncate(time.Second) - (time.Duration(a.Since) * time.Millisecond).Truncate(time.Second))
	}
	if a.Lag > 0 {
		row[4] = screen.Exact(time.Duration(a.Lag) * time.Millisecond)
	}
	if row[5] = screen.Clean(a.Fallback); a.Share > 0 && a.Share < 1 {
		row[5] = fmt.Sprintf("%.3g%%", 100*a.Share) // its share of each limit
	}
	return row
}

// programsOf returns the names of the programs of nodes, each once, in order.
func programsOf(list []redisstore.Live) []string {
	names := map[string]bool{}
	for _, n := range list {
		if n.About.Program != "" {
			names[n.About.Program] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
