package redisstore

import (
	"context"
	"math"
	"time"
)

// maxNodesListed bounds the list of nodes, and of layouts.
const maxNodesListed = 1000

// Live is a node, or a layout, that is in use.
type Live struct {
	Name string
	Left time.Duration // until it counts as gone, unless it is renewed
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
	r, _ := c.reply()
	f.Now = r.now()
	f.Nodes, f.List = r.live()
	_, f.Layouts = r.live()
	if err := r.end(); err != nil {
		return Fleet{}, err
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
