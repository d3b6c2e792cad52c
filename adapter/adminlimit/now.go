package adminlimit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// now is what is shown of the present, and of the last ten minutes.
type now struct {
	Title string         `json:"title"`
	State hybrid.State   `json:"state"`
	Means string         `json:"means"` // the mode, in a sentence
	Node  string         `json:"node"`  // the ID of this node
	Nodes nodeList       `json:"nodes"`
	Stats inside.Figures `json:"stats"`
	// Samples are of the last seconds, the oldest first.
	Samples []sample `json:"samples,omitempty"`
	Plots   []plot   `json:"-"`
	Latest  sample   `json:"-"`
}

// nodeList is the nodes that share the limits.
type nodeList struct {
	List []nodeRow `json:"list"`
	Err  string    `json:"error,omitempty"` // why they are not known
}

// nodeRow is a node. A node that says nothing about itself, as those of older versions, has only an ID.
type nodeRow struct {
	ID       string    `json:"id"`
	Name     string    `json:"name,omitempty"`
	Program  string    `json:"program,omitempty"`
	Version  string    `json:"version,omitempty"`
	Mode     string    `json:"mode,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Lag      float64   `json:"lag_seconds,omitempty"`
	Fallback string    `json:"fallback,omitempty"`
	Share    float64   `json:"share,omitempty"`
	This     bool      `json:"this,omitempty"`
}

// now returns it. Only the JSON has the samples: the page has plots of them.
func (p *Page) now(ctx context.Context, json bool) now {
	n := now{Title: p.o.Title, State: p.lim.State(), Node: inside.Of(p.lim).ID(), Stats: inside.Of(p.lim).QuickFigures()}
	n.Means = meaning(n.State)
	n.Nodes = p.nodes.get(func() nodeList { return p.fleet(ctx, n.State) })
	list := p.history.all()
	if len(list) > 0 {
		n.Latest = list[len(list)-1]
	}
	if json {
		n.Samples = list
	} else {
		n.Plots = plotsOf(list)
	}
	return n
}

// nodesWithin bounds how long a view waits for the list of nodes.
const nodesWithin = 500 * time.Millisecond

// fleet asks Redis for the nodes, unless it is away.
func (p *Page) fleet(ctx context.Context, s hybrid.State) nodeList {
	list := nodeList{List: []nodeRow{}}
	switch s.Mode {
	case hybrid.LocalOnly:
		list.Err = "there is no Redis: this process has limits of its own"
		return list
	case hybrid.Degraded, hybrid.Closed:
		list.Err = fmt.Sprintf("Redis is not asked while the limiter is %v; %s alive when it last answered", s.Mode, many(int64(s.Nodes), "node was", "nodes were"))
		return list
	}
	// A viewer who leaves must not leave an error to the others.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), nodesWithin)
	defer cancel()
	nodes, err := inside.Of(p.lim).Nodes(ctx)
	if err != nil {
		list.Err = "Redis could not be asked for them: " + wordsOf(err)
	}
	me := inside.Of(p.lim).ID()
	for _, n := range nodes {
		r := nodeRow{ID: n.ID, Name: n.Name, Program: n.Program, Version: n.Version, Since: n.Since.UTC(), Lag: n.Lag.Seconds(), Share: n.Share, This: n.ID == me}
		if n.Version == "" {
			r.Since = time.Time{}
		} else {
			r.Mode, r.Fallback = n.Mode, n.Fallback
		}
		if r.This && n.Version != "" {
			r.Mode = s.Mode.String() // its last heartbeat is older than what it knows of itself
		}
		list.List = append(list.List, r)
	}
	// In one order each time, so that a row stays where it is.
	slices.SortFunc(list.List, func(a, b nodeRow) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return list
}

// meaning says what a state means for those who are limited.
func meaning(s hybrid.State) string {
	switch s.Mode {
	case hybrid.Synced:
		if s.Reason != "" {
			return "The shared limit decides, but other processes share no limit with this one: " + s.Reason + "."
		}
		return "The shared limit decides. Each node knows what all others have admitted, up to its lag."
	case hybrid.Degraded:
		cut := ""
		if s.Down > 1 {
			cut = fmt.Sprintf(" %d shards are cut off.", s.Down)
		}
		return trouble(s) + "." + cut + " The fallback decides, and nothing is lost."
	case hybrid.Resyncing:
		return "Redis answers, and is told what it has missed. The shared limit decides."
	case hybrid.LocalOnly:
		return "There is no Redis. This process has limits of its own."
	}
	return "The limiter is closed."
}

// trouble says why the limiter is degraded: what Redis answers, or that it does not.
func trouble(s hybrid.State) string {
	if text := redisstore.Refusal(s.Reason); text != "" {
		return text
	}
	if redisstore.Answered(s.Err) {
		return "Redis answers with an error: " + s.Reason
	}
	return "Redis cannot be reached: " + s.Reason
}

// wordsOf returns an error of the limiter about Redis, for a text that has named Redis already.
func wordsOf(err error) string {
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "hybrid: "), "redis is ")
}

// many returns a number and the words for so many things.
func many(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(n, 10) + " " + more
}
