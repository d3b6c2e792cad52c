package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/rig"
)

func now() time.Duration { return rig.Now() }

// What the limiters are set to, and what bounds depend on. maxBackoff is shorter than the
// default, so that a short run need not wait for a probe.
const (
	interval       = rig.Interval
	lag            = rig.Lag
	commandTimeout = rig.CommandTimeout
	heartbeat      = rig.Heartbeat
	maxBackoff     = 500 * time.Millisecond
)

// settleTimeout bounds every wait for the nodes. It is no promise: on a busy
// machine things take their time.
const settleTimeout = time.Minute

// fleet is the nodes and what they share.
type fleet struct {
	nodes  []*node
	prefix string
	direct *redis.Client // of the demo itself
}

func newFleet(c config, w *world) (*fleet, error) {
	f := &fleet{prefix: fmt.Sprintf("hldemo-%016x", rand.Uint64()), direct: rig.NewPatientClient(w.addr)}
	for id := range c.nodes {
		n := &node{id: id, wire: &wire{}, rng: rand.New(rand.NewPCG(uint64(id), 1))}
		var err error
		n.lim, n.rdb, err = rig.Start(w.addr, rig.Hook{Ended: n.wire.note}, hybrid.Options{
			MaxBackoff: maxBackoff, KeyPrefix: f.prefix, OnStateChange: n.changed,
			// The lines of the demo say when nodes are degraded, and fit the terminal. A log would
			// also say that notices are down: the wire between them and Redis knows no subscriptions.
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			f.close()
			return nil, err
		}
		f.nodes = append(f.nodes, n)
	}
	return f, nil
}

// ready waits until every node knows all others.
func (f *fleet) ready(ctx context.Context) error {
	// The nodes themselves would wait for a Redis that is not there.
	if err := f.direct.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("there is no Redis: %w", err)
	}
	return f.await(ctx, "all nodes to find Redis and each other", func(s hybrid.State) bool {
		return s.Mode == hybrid.Synced && s.Nodes == len(f.nodes)
	})
}

// await waits until every node's state is as wanted.
func (f *fleet) await(ctx context.Context, what string, want func(hybrid.State) bool) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		i := slices.IndexFunc(f.nodes, func(n *node) bool { return !want(n.lim.State()) })
		if i < 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s := f.nodes[i].lim.State()
			return fmt.Errorf("waiting for %s: node %d is %v: %w", what, i, s, errors.Join(ctx.Err(), s.Err))
		}
	}
}

// acked returns for each node the units that Redis has confirmed to it, those
// that it has forgiven included, as in its ledgers.
func (f *fleet) acked() []int64 {
	units := make([]int64, len(f.nodes))
	for i, n := range f.nodes {
		s := n.lim.Stats()
		units[i] = s.BookedUnits + s.ForgivenUnits
	}
	return units
}

// books is the final account of units.
type books struct {
	acked   []int64 // per node: confirmed since Redis last lost its data
	ledger  []int64 // per node, in another order: what Redis says of the same time
	before  int64   // confirmed before that
	expired int64
	pending int64
	losses  int64
	quota   int64 // admitted of the quota's key
	counted int64 // what Redis' counter of it says
	err     error // why the nodes could not settle
	leak    string
}

// settle has every node tell Redis the rest, and compares notes. atLoss is
// what the nodes had had confirmed when Redis lost its data, nil if it did not.
func (f *fleet) settle(ctx context.Context, atLoss []int64) (*books, error) {
	b := &books{}
	b.err = f.flush(ctx)
	// Redis cannot be asked what it had booked before it lost that: up to
	// there the nodes' word must do. From there on its ledger must agree. The
	// snapshot is taken while Redis is dead, so that a batch whose confirmation
	// was lost with it counts as one of the time after, as in the new ledger.
	b.acked = f.acked()
	for i, units := range atLoss {
		b.acked[i] -= units
		b.before += units
	}
	for i, n := range f.nodes {
		s := n.lim.Stats()
		b.expired += s.ExpiredUnits
		b.pending += s.PendingUnits
		b.losses += s.Losses
		if s.AdmittedUnits != s.BookedUnits+s.ForgivenUnits+s.ExpiredUnits || s.OverflowUnits != 0 {
			b.leak += fmt.Sprintf("node %d: admitted %d, acked %d, forgiven %d, expired %d, not shared %d. ",
				i, s.AdmittedUnits, s.BookedUnits, s.ForgivenUnits, s.ExpiredUnits, s.OverflowUnits)
		}
	}
	var err error
	if b.ledger, err = f.ledgers(ctx); err == nil {
		b.counted, err = f.counted(ctx)
	}
	for _, n := range f.nodes {
		for _, u := range n.records[len(n.records)-1].admitted {
			b.quota += u
		}
	}
	return b, err
}

// flush reports what is left on every node.
func (f *fleet) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	var g errgroup.Group
	for _, n := range f.nodes {
		g.Go(func() error { return rig.Flush(ctx, n.lim) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return f.await(ctx, "all nodes to be synced", func(s hybrid.State) bool { return s.Mode == hybrid.Synced })
}

// ledgers returns for each node the units that Redis has booked, or forgiven, by its own
// account. They must be read before Close, which deletes them.
func (f *fleet) ledgers(ctx context.Context) ([]int64, error) {
	keys, err := rig.Scan(ctx, f.direct, rig.LedgerPattern(f.prefix))
	if err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	sums := map[string]int64{}
	for _, key := range keys {
		value, err := f.direct.Get(ctx, key).Result()
		if err != nil {
			return nil, fmt.Errorf("ledger %s: %w", key, err)
		}
		total, err := rig.LedgerTotal(key, value)
		if err != nil {
			return nil, err
		}
		sums[rig.LedgerNode(key)] += total
	}
	return slices.Collect(maps.Values(sums)), nil
}

// differ compares what nodes and Redis say, node by node. Which ledger is
// whose is not known: pairing them in order of size is the best match there is.
func (b *books) differ() (lost, double int64) {
	nodes := max(len(b.acked), len(b.ledger)) // one that never told anything has no ledger
	acked, ledger := padded(b.acked, nodes), padded(b.ledger, nodes)
	for i, booked := range ledger {
		lost += max(0, acked[i]-booked)
		double += max(0, booked-acked[i])
	}
	return lost, double
}

// padded returns units in order of size, with as many zeros as n lacks.
func padded(units []int64, n int) []int64 {
	out := make([]int64, n)
	copy(out, units)
	slices.Sort(out)
	return out
}

// close stops the nodes and leaves nothing behind in a Redis that answers.
func (f *fleet) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, n := range f.nodes {
		wg.Go(func() {
			_ = n.lim.Shutdown(ctx) // what it could not tell was judged before
			n.rdb.Close()
		})
	}
	wg.Wait()
	keys, _ := rig.Scan(ctx, f.direct, f.prefix+":*") // those that are not found expire
	for _, key := range keys {
		f.direct.Unlink(ctx, key)
	}
	f.direct.Close()
}

// counted returns the units that Redis' counter of the quota holds: the counter
// itself, which the ledgers know nothing of. Its window outlasts the run.
func (f *fleet) counted(ctx context.Context) (units int64, err error) {
	keys, err := rig.Scan(ctx, f.direct, f.prefix+":1:{*}:s:*:quota:k:quota")
	if err != nil {
		return 0, fmt.Errorf("scan: %w", err)
	}
	for _, key := range keys {
		value, err := f.direct.Get(ctx, key).Result()
		if err != nil {
			return 0, fmt.Errorf("counter %s: %w", key, err)
		}
		buckets, err := rig.Buckets(key, value)
		if err != nil {
			return 0, err
		}
		for _, b := range buckets {
			units += b.Units
		}
	}
	return units, nil
}
