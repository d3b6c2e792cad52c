package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/rig"
)

// fault is one that is at work, or was.
type fault struct {
	name       string
	node       int // everyone: all
	from, to   time.Duration
	cause      bool          // exchanges may fail
	shut, open time.Duration // when all of them do; 0: never; open may be forever
	key        int           // the item that nobody can use; noKey: none
	kind       kind          // lost, pardoned or crowded: it happens at some moment from from to to,
	on         int           // to this item or place
}

const (
	everyone = -1
	noKey    = -1
	forever  = time.Duration(1<<63 - 1)
)

// changes returns how many changes of state a fault explains: away, back, and
// synced; and one that is back and away again with each probe that a fault lets
// through, of which there may be one in two seconds.
func (f *fault) changes(by time.Duration) uint64 {
	if !f.cause {
		return 0
	}
	return 3 + uint64((by-f.from)/time.Second)
}

// after is how long a fault may be felt: by connections that it has broken and
// that are found out when they are used.
const after = 3 * time.Second

func (f *fault) concerns(node int) bool { return f.node == everyone || f.node == node }

// begin writes a fault down, before it begins. cause says that exchanges may
// fail.
func (r *run) begin(name string, node int, cause bool) *fault {
	f := &fault{name: name, node: node, from: rig.Now(), to: forever, cause: cause, key: noKey}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, f)
	r.counts[name]++
	if r.verbose {
		who := "server"
		if node != everyone {
			who = fmt.Sprint("node ", node)
		}
		fmt.Fprintf(r.out, "%8s  %s: %s\n", (f.from - r.start).Round(time.Millisecond), who, name)
	}
	return f
}

// removes writes down, before it happens, that a fault removes data. When Redis has done
// it is known when the fault is over: until then it may be any moment, however busy this
// machine is.
func (r *run) removes(f *fault, kind kind, on int) { r.note(func() { f.kind, f.on = kind, on }) }

// during reports whether a fault was at work in a stretch.
func (f *fault) during(from, to time.Duration) bool { return f.from < to && f.to >= from }

// end writes down that a fault is over.
func (r *run) end(f *fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.to = rig.Now()
	r.explained += r.victims(f) * f.changes(f.to)
}

// victims returns how many nodes a fault concerns.
func (r *run) victims(f *fault) uint64 {
	if f.node == everyone {
		return uint64(len(r.nodes))
	}
	return 1
}

// seal notes that from now on a fault leaves no way to Redis, and unseal that
// this is about to end.
func (r *run) seal(f *fault)   { r.note(func() { f.shut, f.open = rig.Now(), forever }) }
func (r *run) unseal(f *fault) { r.note(func() { f.open = rig.Now() }) }

func (r *run) note(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

// sealed tells whether there was no way to Redis during all of a stretch.
func (f *fault) sealed(from, to time.Duration) bool {
	return f.shut != 0 && f.shut <= from && to <= f.open
}

// dice draws what befalls one victim. Each has its own, so that one seed gives
// each the same fortune, whatever the others do.
type dice struct{ *rand.Rand }

func (d dice) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(d.Int64N(int64(hi-lo)+1))
}

// mostlyShort draws a length of which long ones are rare.
func (d dice) mostlyShort(lo, hi time.Duration) time.Duration {
	x := d.Float64()
	return lo + time.Duration(float64(hi-lo)*x*x*x)
}

// pick draws one of several by their weights.
func pick[T any](d dice, choices []choice[T]) T {
	sum := 0
	for _, c := range choices {
		sum += c.weight
	}
	n := d.IntN(sum)
	for _, c := range choices {
		if n -= c.weight; n < 0 {
			return c.do
		}
	}
	panic("unreachable")
}

type choice[T any] struct {
	weight int
	do     T
}

// seasons alternates storms and calms until ctx ends: bounds are strictest
// when nothing has been wrong for a while.
func (r *run) seasons(ctx context.Context) error {
	d := dice{rand.New(rand.NewPCG(r.seed, 1))}
	if !rig.Pause(ctx, warmUp) {
		return nil
	}
	for {
		r.calm.Store(false)
		if !rig.Pause(ctx, d.between(10*time.Second, 25*time.Second)) {
			return nil
		}
		r.calm.Store(true)
		if !rig.Pause(ctx, d.between(14*time.Second, 20*time.Second)) {
			return nil
		}
	}
}

// warmUp is how long nothing happens at first.
const warmUp = 2 * time.Second

// befall brings one misfortune after the other, with pauses, while it storms.
func (r *run) befall(ctx context.Context, d dice, lo, hi time.Duration, next func(dice) error) error {
	for rig.Pause(ctx, d.between(lo, hi)) {
		if r.calm.Load() {
			continue
		}
		if err := next(d); err != nil {
			return err
		}
	}
	return nil
}

// nodeFault is a misfortune of one node, its wire or its process.
func (r *run) nodeFault(ctx context.Context, n *node, d dice) error {
	short, long := d.between(200*ms, time.Second), d.mostlyShort(200*ms, 8*time.Second)
	return pick(d, []choice[func() error]{
		{6, func() error { return r.lossy(ctx, n, "replies cut", short, 1+d.IntN(4), n.proxy.CutReplies) }},
		{1, func() error { return r.lossy(ctx, n, "replies cut", long, many, n.proxy.CutReplies) }},
		{4, func() error { return r.lossy(ctx, n, "requests lost", short, 1+d.IntN(4), n.proxy.DropRequests) }},
		{1, func() error { return r.lossy(ctx, n, "requests lost", long, many, n.proxy.DropRequests) }},
		{2, func() error { return r.lossy(ctx, n, "doubled", short, 1+d.IntN(4), n.proxy.Double) }},
		{2, func() error { return r.lossy(ctx, n, "torn", short, d.IntN(8000)-4000, tear(n.proxy)) }},
		{2, func() error { return r.sever(n) }},
		{3, func() error { return r.apart(ctx, n, "refused", long, n.proxy.Refuse) }},
		{3, func() error { return r.apart(ctx, n, "black hole", long, n.proxy.BlackHole) }},
		{4, func() error {
			return r.delay(ctx, n, d.mostlyShort(5*ms, 400*ms), d.between(500*ms, 4*time.Second))
		}},
		{2, func() error { return r.renew(n, false) }},
		{1, func() error { return r.renew(n, true) }},
	})()
}

const ms = time.Millisecond

// many is more exchanges than there are during a fault: all of them are hit.
const many = 1 << 20

// lossy loses some of the next exchanges.
func (r *run) lossy(ctx context.Context, n *node, name string, length time.Duration, exchanges int, lose func(int)) error {
	f := r.begin(name, n.place, true)
	lose(exchanges)
	rig.Pause(ctx, length)
	lose(0)
	r.end(f)
	return nil
}

// tear returns what breaks the next exchange after so many bytes, and ends that
// with 0.
func tear(p *redistest.Proxy) func(int) {
	return func(after int) {
		if after == 0 {
			p.Tear()
			return
		}
		p.Tear(after)
	}
}

// sever cuts all connections, once.
func (r *run) sever(n *node) error {
	f := r.begin("connections cut", n.place, true)
	n.proxy.Cut()
	r.end(f)
	return nil
}

// bearable is a delay that is no excuse: an exchange stays well within its
// timeout even when a connection has to be made first, or scripts are to be
// loaded. It makes δ larger, no more.
const bearable = 50 * time.Millisecond

// delay holds every exchange up.
func (r *run) delay(ctx context.Context, n *node, by, length time.Duration) error {
	f := r.begin("delayed", n.place, by > bearable)
	n.proxy.Delay(by)
	rig.Pause(ctx, length)
	n.proxy.Delay(0)
	r.end(f)
	return nil
}

// apart takes all ways to Redis from a node for a while.
func (r *run) apart(ctx context.Context, n *node, name string, length time.Duration, do func(on bool)) error {
	f := r.begin(name, n.place, true)
	do(true)
	r.seal(f)
	rig.Pause(ctx, length)
	r.unseal(f)
	do(false)
	r.end(f)
	return nil
}

// renew ends the process of a node, by a crash or in order, and starts another.
func (r *run) renew(n *node, orderly bool) error {
	n.mu.Lock()
	life := rig.Now() - n.born
	n.mu.Unlock()
	if life < 3*time.Second {
		return nil
	}
	name := "crash"
	if orderly {
		name = "restart"
	}
	f := r.begin(name, n.place, true)
	a, ended, err := n.replace(orderly)
	r.books.retire(a)
	r.end(f)
	if ended != nil && orderly && r.untroubled(n.place, f.from-quarantine-after, f) {
		r.breach("node %d could not end in order although nothing was wrong: %v", n.place, ended)
	}
	return err
}

// serverFault is a misfortune of the server.
func (r *run) serverFault(ctx context.Context, d dice) error {
	return pick(d, []choice[func() error]{
		{4, func() error { return r.freeze(ctx, d.between(200*ms, 3*time.Second)) }},
		{2, func() error { return r.kill(ctx, d.mostlyShort(100*ms, 8*time.Second), 0, d) }},
		{1, func() error {
			return r.kill(ctx, d.between(3*time.Second, 8*time.Second), 1+d.IntN(len(r.nodes)), d)
		}},
		{2, func() error { return r.flushAll() }},
		{2, func() error { return r.flushAgain(ctx, d.between(10*ms, 1500*ms)) }},
		{2, func() error { return r.flushUnheard(ctx, r.nodes[d.IntN(len(r.nodes))], d.between(10*ms, 200*ms)) }},
		{2, func() error { return r.flushScripts() }},
		{2, func() error { return r.outOfMemory(ctx, d.between(200*ms, 2*time.Second)) }},
		{5, func() error { return r.deleteKey(d) }},
		{2, func() error { return r.deleteLedger(d) }},
		{1, func() error { return r.deleteNodes() }},
		{3, func() error { return r.poisonKey(ctx, d, d.between(200*ms, 2*time.Second)) }},
	})()
}

// freeze stops the server for a while.
func (r *run) freeze(ctx context.Context, length time.Duration) error {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	f := r.begin("frozen", everyone, true)
	defer r.end(f)
	if err := r.world.server.Freeze(); err != nil {
		return err
	}
	r.seal(f)
	rig.Pause(ctx, length)
	r.unseal(f)
	return r.world.server.Thaw()
}

// kill ends the server and starts an empty one. So many processes crash meanwhile, and the
// next begin without it.
func (r *run) kill(ctx context.Context, length time.Duration, crashes int, d dice) error {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	f := r.begin("killed", everyone, true)
	defer r.end(f)
	before := r.accounts()
	l, err := r.world.lastLedgers()
	if err != nil {
		return err
	}
	r.removes(f, lost, wholeLoss)
	r.world.server.Kill()
	r.seal(f)
	r.books.audit(before, l, r.accounts(), false)
	r.mayBookAgain(r.books.turn(before, l, l, true))
	for range crashes {
		rig.Pause(ctx, length/time.Duration(crashes+1))
		if err := r.renew(r.nodes[d.IntN(len(r.nodes))], false); err != nil {
			return err
		}
	}
	rig.Pause(ctx, length/time.Duration(crashes+1))
	r.unseal(f)
	return r.world.server.Restart()
}

// flushAll has the server forget everything in one instant.
func (r *run) flushAll() error {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	f := r.begin("FLUSHALL", everyone, false)
	defer r.end(f)
	r.removes(f, lost, wholeLoss)
	return r.forget("all")
}

// flushAgain has the server forget everything, and once more while the nodes tell it
// what they know.
func (r *run) flushAgain(ctx context.Context, after time.Duration) error {
	if err := r.flushAll(); err != nil || !rig.Pause(ctx, after) {
		return err
	}
	return r.flushAll()
}

// flushUnheard has the server forget everything when a node has not been answered for
// a while: others have heard of what it reports again.
func (r *run) flushUnheard(ctx context.Context, n *node, after time.Duration) error {
	f := r.begin("unheard", n.place, true)
	defer r.end(f)
	n.proxy.CutReplies(many)
	defer n.proxy.CutReplies(0)
	rig.Pause(ctx, after)
	return r.flushAll()
}

// forget has the server forget a key, or all, of which the ledgers are read in
// the same instant.
func (r *run) forget(key string) error {
	before := r.accounts()
	l, lost, err := r.world.ledgers(key)
	if err != nil {
		return err
	}
	r.books.audit(before, l, r.accounts(), false)
	r.mayBookAgain(r.books.turn(before, l, lost, key == "all"))
	return nil
}

// mayBookAgain notes how many units of each place were booked and not acknowledged when
// the record of that was lost. The fault that lost it is not over yet.
func (r *run) mayBookAgain(units map[int]int64) {
	x := rebooking{units: make([]int64, len(r.nodes))}
	for place, n := range units {
		x.units[place] = n
	}
	r.note(func() {
		x.slot = r.slotOf(rig.Now())
		r.rebookings = append(r.rebookings, x)
	})
}

func (r *run) flushScripts() error {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	f := r.begin("SCRIPT FLUSH", everyone, false)
	defer r.end(f)
	ctx, cancel := r.world.ask()
	defer cancel()
	return r.world.direct.ScriptFlush(ctx).Err()
}

// outOfMemory has the server refuse all writes for a while.
func (r *run) outOfMemory(ctx context.Context, length time.Duration) error {
	f := r.begin("out of memory", everyone, true)
	defer r.end(f)
	if err := r.configure("maxmemory", "1"); err != nil {
		return err
	}
	rig.Pause(ctx, length)
	return r.configure("maxmemory", "0")
}

func (r *run) configure(name, value string) error {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	ctx, cancel := r.world.ask()
	defer cancel()
	return r.world.direct.ConfigSet(ctx, name, value).Err()
}

// deleteKey has the server forget one counter.
func (r *run) deleteKey(d dice) error {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	k := r.traffic.victim(d)
	f := r.begin("key deleted", everyone, false)
	defer r.end(f)
	r.removes(f, lost, k)
	_, err := r.world.remove(r.world.key(r.traffic.items[k]))
	return err
}

// deleteLedger has the server forget which batches of a node it has booked in
// a shard. The node takes it for a loss.
func (r *run) deleteLedger(d dice) error {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	ctx, cancel := r.world.ask()
	defer cancel()
	n := r.nodes[d.IntN(len(r.nodes))]
	n.mu.Lock()
	id := inside.Of(n.lim).ID()
	n.mu.Unlock()
	keys, err := rig.Scan(ctx, r.world.direct, strings.Replace(rig.LedgerPattern(r.world.prefix), "node:*", "node:"+id, 1))
	if err != nil || len(keys) == 0 {
		return err
	}
	f := r.begin("ledger deleted", everyone, false)
	defer r.end(f)
	r.removes(f, pardoned, n.place)
	return r.forget(keys[d.IntN(len(keys))])
}

// deleteNodes has the server forget who is there.
func (r *run) deleteNodes() error {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	f := r.begin("nodes deleted", everyone, false)
	defer r.end(f)
	r.removes(f, crowded, everyone)
	_, err := r.world.remove(r.world.keys.NodesKey())
	return err
}

// quarantine is how long a node leaves a broken key alone.
const quarantine = 5 * time.Second

// poisonKey puts a value of another type in the place of a counter for a while.
func (r *run) poisonKey(ctx context.Context, d dice, length time.Duration) error {
	k := r.traffic.victim(d)
	name := r.world.key(r.traffic.items[k])
	f := r.begin("key poisoned", everyone, false)
	r.note(func() { f.key = k })
	defer r.end(f)
	r.removes(f, lost, k)
	r.world.mu.Lock()
	err := r.world.poison(name)
	r.world.mu.Unlock()
	if err != nil {
		return err
	}
	rig.Pause(ctx, length)
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	_, err = r.world.remove(name)
	return err
}
