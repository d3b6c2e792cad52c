package redisstore

import (
	"context"
	"encoding/json"
	"math"
	"time"
)

// maxNodesListed bounds the list of nodes, and of layouts.
const maxNodesListed = 1000

// Live is a node, or a layout, that is in use.
type Live struct {
	Name  string
	Left  time.Duration // until it counts as gone, unless it is renewed
	About About         // of a node: what it says about itself; zero: nothing, as older versions
}

// About is what a node says about itself beside its heartbeat. It is for people: nothing is decided
// by it. Fields that are added later are ignored by versions that do not know them.
type About struct {
	Name     string  `json:"name,omitempty"`    // of the host and the process, or what the user calls it
	Program  string  `json:"program,omitempty"` // file name of the executable
	Version  string  `json:"version,omitempty"` // of this library
	Mode     string  `json:"mode,omitempty"`    // as package hybrid calls it
	Since    int64   `json:"since_ms,omitempty"`
	Started  int64   `json:"started_ms,omitempty"` // both since the Unix epoch, by the node's clock
	Lag      int64   `json:"lag_ms,omitempty"`     // how old its view of a key in use may be
	Fallback string  `json:"fallback,omitempty"`   // its policy in an outage
	Share    float64 `json:"share,omitempty"`      // how much of each limit it admits then
}

// maxAboutBytes bounds what is read of a node: others may have written it.
const maxAboutBytes = 4096

// decodeAbout returns the zero About for what is none.
func decodeAbout(v any) (a About) {
	text, _ := v.(string)
	if len(text) > maxAboutBytes || json.Unmarshal([]byte(text), &a) != nil {
		return About{}
	}
	for _, s := range []*string{&a.Name, &a.Program, &a.Version, &a.Mode, &a.Fallback} {
		*s = bounded(*s)
	}
	return a
}

// Fleet is the nodes and layouts that use a Redis.
type Fleet struct {
	Now   time.Duration // Redis' time since the Unix epoch
	Nodes int           // number of live nodes
	// List has the live nodes; of more than 1,000, those that expire last.
	List []Live
	// Layouts are the layouts in use, see [Keyspace.Layout]. Nodes of other layouts than
	// ours are not counted.
	Layouts []Live
}

// Fleet lists the nodes that are alive. A list that cannot be read is a [*limit.KeyError].
func (s *Store) Fleet(ctx context.Context) (f Fleet, err error) {
	c := &call{script: scriptNodes, keys: []string{s.keys.NodesKey(), s.keys.LayoutsKey()}, args: []any{maxNodesListed}}
	s.do(ctx, c)
	r := c.reply()
	f.Now = r.now()
	f.Nodes, f.List = r.live()
	_, f.Layouts = r.live()
	if err := r.end(); err != nil {
		return Fleet{}, err
	}
	if len(f.List) == 0 {
		return f, nil
	}
	// What the nodes say about themselves is filled in as far as it can be read.
	c = &call{args: []any{"mget"}}
	for _, n := range f.List {
		c.args = append(c.args, s.keys.AboutKey(n.Name))
	}
	s.do(ctx, c)
	texts, _ := c.val.([]any)
	for i := range min(len(texts), len(f.List)) {
		f.List[i].About = decodeAbout(texts[i])
	}
	return f, nil
}

// live returns the next items: the number of members of a set, and those that are listed.
func (r *reader) live() (count int, list []Live) {
	count = int(r.number(math.MaxInt32))
	listed := r.number(maxNodesListed)
	for i := int64(0); i < listed && r.err == nil; i++ {
		list = append(list, Live{Name: bounded(r.text()), Left: r.now()})
	}
	return count, list
}
