package hybrid

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	mrand "math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// driver runs the state machine of package reconcile. One goroutine steps it. Each call of Redis runs
// in a goroutine, which then waits for another call. There are at most four of them per server, and two
// more: for a heartbeat, and for notices.
type driver struct {
	lim      *Limiter
	machine  *reconcile.Machine
	fallback reconcile.Fallback
	notices  bool // nodes notify each other of keys that are used up
	store    *redisstore.Store
	listener *listener // receives the notices of other nodes; nil: there are no notices
	node     atomic.Pointer[string]
	beatTTL  time.Duration
	self     redisstore.About // what does not change of what this node says about itself
	lag      time.Duration    // MaxLag

	results  chan result
	received chan struct{}               // signals that the listener has received something
	requests chan func() reconcile.Event // each is called by the stepping goroutine
	jobs     chan func()                 // unbuffered: a job goes to a goroutine that waits for one, or to none
	stop     chan struct{}
	stepped  chan struct{} // closed: the stepping goroutine has ended
	done     errgroup.Group
	exact    exactCalls               // of TakeExact
	addrs    atomic.Pointer[[]string] // of the servers of all shards, as far as the latest heartbeat knew them
	patience atomic.Int64             // how long the latest heartbeat may take, ns
	state    atomic.Pointer[State]
	dials    atomic.Uint32 // how many connections the client had made when it last answered

	// Owned by the stepping goroutine.
	calls   map[uint64]call
	late    map[uint64]callKind   // calls that have overrun their deadline
	waiting map[uint64]chan error // flushes that callers wait for
	lastReq uint64
}

// call is an exchange under way.
type call struct {
	deadline   time.Duration // on the timer clock
	kind       callKind
	notStarted bool // it was not sent, because an earlier call of its kind still hangs
}

type callKind uint8

const (
	callPipeline callKind = iota
	callBeat
	callPublish
)

// result is the event of a call that has ended.
type result struct {
	id uint64
	ev reconcile.Event
}

// newDriver returns a driver that does not run yet.
func newDriver(rdb redis.UniversalClient, store *redisstore.Store, o Options, l *Limiter) *driver {
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // never fails: the runtime would crash first
	d := &driver{
		lim: l, store: store, beatTTL: 3 * o.HeartbeatInterval, self: introduce(o), lag: o.MaxLag,
		results: make(chan result, 8), requests: make(chan func() reconcile.Event), stop: make(chan struct{}), stepped: make(chan struct{}),
		calls: map[uint64]call{}, late: map[uint64]callKind{}, waiting: map[uint64]chan error{},
		received: make(chan struct{}, 1), jobs: make(chan func()),
	}
	d.exact = exactCalls{l: l, timeout: exactPatience * o.CommandTimeout, used: make([]atomic.Bool, store.Keyspace().Shards()), servers: map[string]*exactServer{}}
	_, single := rdb.(*redis.Client)
	cfg := o.config()
	cfg.Single, cfg.Channel = single, store.KnownChannel()
	d.machine = reconcile.New(reconcile.Parts{
		Config: cfg, Rand: mrand.New(mrand.NewChaCha8(seed)), IDs: systemIdentities(),
		Link: l.link, Keys: store.Keyspace(), Each: l.table.Range, Stats: &l.stats,
	})
	if single { // then its address is known without asking
		d.machine.Place(store.Servers(context.Background()))
	}
	d.fallback, d.notices = cfg.Fallback, cfg.Notices
	name := d.machine.Node()
	d.node.Store(&name)
	first := d.machine.State()
	first.Since = l.now()
	is := stateOf(first)
	d.state.Store(&is)
	return d
}

// begin starts the goroutines.
func (d *driver) begin() {
	if d.notices {
		d.listener = newListener(d.store, d.wakeReceived)
	}
	d.done.Go(d.run)
	d.done.Go(d.lim.notify.run)
}

// minPause is the shortest time between two steps without an event.
const minPause = 200 * time.Microsecond

// run steps the machine until the driver is stopped.
func (d *driver) run() error {
	defer close(d.stepped)
	defer d.lim.notify.stop()
	// The first step comes before the timer. A timer of 0 has run out before anybody waits for it, and several
	// of these in a bubble of testing/synctest crash the race detector at times (golang/go#78156).
	d.step(reconcile.Tick{})
	timer := time.NewTimer(d.pause())
	defer timer.Stop()
	for {
		var ev reconcile.Event = reconcile.Tick{}
		select {
		case <-timer.C:
			ev = d.overdue()
		case <-d.lim.link.Wake():
		case <-d.received:
			ev = d.hear()
		case r := <-d.results:
			ev = d.ended(r)
		case q := <-d.requests:
			ev = q()
		case <-d.stop:
			return nil
		}
		d.step(ev)
		timer.Reset(d.pause())
	}
}

// step gives an event to the machine and carries out the effects.
func (d *driver) step(ev reconcile.Event) {
	at, local := int64(pace()), int64(0)
	if local = at; d.lim.clock != clock.Clock(clock.System{}) { // one reading serves for both clocks if they are the same
		local = d.lim.now()
	}
	for _, e := range d.machine.Step(at, local, ev) {
		switch e := e.(type) {
		case reconcile.Send:
			d.send(e)
		case reconcile.Beat:
			d.beat(e)
		case reconcile.Publish:
			d.announce(e)
		case reconcile.Listen:
			d.listen(e)
		case reconcile.NewName:
			d.node.Store(&e.Node)
		case reconcile.NewState:
			d.publish(stateOf(e.State))
		case reconcile.Happened:
			d.lim.notify.happened(eventOf(e.Incident))
		case reconcile.Flushed:
			if ch := d.waiting[e.ID]; ch != nil {
				delete(d.waiting, e.ID)
				if e.Booked {
					ch <- nil
				} else {
					ch <- &UnavailableError{Reason: e.Reason, err: e.Err}
				}
			}
		}
	}
}

// pause returns how long to wait for an event.
func (d *driver) pause() time.Duration {
	at, sleep := d.machine.WakeAt()
	for _, c := range d.calls {
		at = min(at, int64(c.deadline))
	}
	if sleep && !d.lim.link.Sleep() {
		return minPause
	}
	return max(time.Duration(at)-pace(), minPause)
}

// grace is how much longer than its deadline a call is waited for, so that a client that
// keeps deadlines can return its own error.
const grace = 100 * time.Millisecond

// overdue returns the event of a call that has overrun its deadline, if there is one.
func (d *driver) overdue() reconcile.Event {
	now := pace()
	for id, c := range d.calls {
		if now >= c.deadline {
			delete(d.calls, id)
			if !c.notStarted {
				d.late[id] = c.kind
			}
			return reconcile.TimedOut{ID: id}
		}
	}
	return reconcile.Tick{}
}

// ended returns the event of a call that has returned.
func (d *driver) ended(r result) reconcile.Event {
	if _, late := d.late[r.id]; late {
		delete(d.late, r.id)
		return reconcile.Freed{ID: r.id}
	}
	delete(d.calls, r.id)
	return r.ev
}

// start starts f as a call, which has at most the time most, in ns. If an earlier heartbeat still hangs
// the next one fails instead, and so do calls that publish: else goroutines would pile up. The machine
// bounds the pipelines itself.
func (d *driver) start(id uint64, kind callKind, most int64, f func(context.Context) reconcile.Event) {
	if kind != callPipeline && slices.Contains(slices.Collect(maps.Values(d.late)), kind) {
		d.calls[id] = call{deadline: pace(), kind: kind, notStarted: true}
		return
	}
	d.calls[id] = call{deadline: pace() + time.Duration(most) + grace, kind: kind}
	job := func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(most))
		ev := f(ctx)
		cancel()
		select {
		case d.results <- result{id, ev}:
		case <-d.stop:
		}
	}
	select {
	case d.jobs <- job: // to an idle goroutine: its stack has grown already
	default:
		d.done.Go(func() error { return d.work(job) })
	}
}

// work does one job after another.
func (d *driver) work(job func()) error {
	for {
		job()
		select {
		case job = <-d.jobs:
		case <-d.stop:
			return nil
		}
	}
}

// send starts a pipeline.
func (d *driver) send(e reconcile.Send) {
	var m *redisstore.Message
	if len(e.Notices) > 0 {
		m = d.message(e.Channel, d.machine.Node(), e.Notices)
	}
	before := d.dials.Load()
	d.start(e.ID, callPipeline, e.Timeout, func(ctx context.Context) reconcile.Event {
		began := pace()
		out, err := d.store.Exec(ctx, e.Batches, m)
		return reconcile.Replies{ID: e.ID, Recv: d.lim.now(), Took: int64(pace() - began), Outcomes: out, PublishErr: err, Dialed: d.dialed(before, out)}
	})
}

// dialed reports whether the client may have made a connection since the number of its connections was
// before. It asks for the number only after a success: a client of a Cluster that knows no server yet
// would use the network.
func (d *driver) dialed(before uint32, out []redisstore.Outcome) bool {
	if slices.ContainsFunc(out, func(o redisstore.Outcome) bool { return o.Err != nil }) {
		return false
	}
	now := d.store.Dials()
	d.dials.Store(now)
	return now != before
}

// beat starts a heartbeat.
func (d *driver) beat(e reconcile.Beat) {
	var o redisstore.BeatOptions
	if d.listener != nil {
		o.Offer = cmp.Or(d.store.KnownChannel(), e.Node)
	}
	o.EchoVia = e.Via
	if e.Channel != "" {
		o.EchoChannel, o.Echo = d.store.Keyspace().EchoChannel(e.Channel, e.Node), strconv.FormatUint(e.Echo, 10)
	}
	about := d.about()
	o.About = &about
	d.patience.Store(e.Timeout)
	d.start(e.ID, callBeat, e.Timeout*5/4, func(ctx context.Context) reconcile.Event {
		brief, cancel := context.WithTimeout(ctx, time.Duration(e.Timeout)/4)
		addrs := d.store.Servers(brief) // the first time this may use the network
		cancel()
		d.addrs.Store(&addrs)
		b, err := d.store.Beat(ctx, e.Node, d.beatTTL, e.Shards, o)
		return reconcile.BeatAnswer{ID: e.ID, Recv: d.lim.now(), Addrs: addrs, Beat: b, Err: err}
	})
}

// serverOf returns the address of the server of a key, as far as it is known: empty for the only one.
func (d *driver) serverOf(key string) string {
	addrs := d.addrs.Load()
	if d.store.Keyspace().Shards() == 1 || addrs == nil {
		return ""
	}
	return (*addrs)[d.store.Keyspace().Shard(key)]
}

// message returns the message that publishes notices.
func (d *driver) message(channel, node string, list []report.Notice) *redisstore.Message {
	return &redisstore.Message{Channel: d.store.Keyspace().NoticeChannel(channel), Payload: redisstore.AppendNotices(nil, node, list)}
}

// announce publishes notices in a call of their own.
func (d *driver) announce(e reconcile.Publish) {
	d.start(e.ID, callPublish, e.Timeout, func(ctx context.Context) reconcile.Event {
		m := d.message(e.Channel, e.Node, e.Notices)
		m.Via = e.Via
		return reconcile.Published{ID: e.ID, Err: d.store.Publish(ctx, *m)}
	})
}

// listen subscribes to notices, and to the echo of a node.
func (d *driver) listen(e reconcile.Listen) {
	if e.Channel == "" {
		d.listener.listen("", "")
		return
	}
	keys := d.store.Keyspace()
	d.listener.listen(keys.NoticeChannel(e.Channel), keys.EchoChannel(e.Channel, e.Node))
}

// wakeReceived wakes the stepping goroutine to take what the listener has received.
func (d *driver) wakeReceived() {
	select {
	case d.received <- struct{}{}:
	default: // it will wake up already
	}
}

// hear returns the event of what the subscription has received.
func (d *driver) hear() reconcile.Event {
	h := d.listener.take()
	d.lim.stats.Missed.Add(uint64(h.dropped))
	ev := reconcile.Received{Echo: h.echo, Confirmed: h.confirmed, Dropped: h.dropped > 0, Err: h.err}
	for _, payload := range h.messages {
		if node, list, ok := redisstore.ReadNotices(payload); ok {
			ev.Messages = append(ev.Messages, reconcile.Message{Node: node, Notices: list})
		} else {
			d.lim.stats.BadReplies.Add(1)
		}
	}
	return ev
}

// announceRoom notifies the other nodes that a caller has made room for a key.
func (d *driver) announceRoom(n report.Notice) {
	if d.listener != nil {
		d.request(func() reconcile.Event { return reconcile.Room{Notice: n} })
	}
}

// request lets the stepping goroutine call f for an event, unless that goroutine has to end.
func (d *driver) request(f func() reconcile.Event) {
	select {
	case d.requests <- f:
	case <-d.stop:
	}
}

// await waits until an exchange has ended. It returns false if ctx or the driver ends first.
func (d *driver) await(ctx context.Context, ended <-chan struct{}) bool {
	select {
	case <-ended:
		return true
	case <-ctx.Done():
	case <-d.stop:
	}
	return false
}

// publish stores a state for [Limiter.State], and passes it to the notifier.
func (d *driver) publish(s State) {
	before := d.state.Swap(&s)
	if d.listener != nil && s.Mode == Synced && before.Mode != Synced {
		d.listener.retry() // its pause may last for seconds more, but Redis answers again
	}
	d.lim.notify.changed(s)
}

// flush asks for a flush and waits until it has ended.
func (d *driver) flush(ctx context.Context, f reconcile.Flush) error {
	if err := ctx.Err(); err != nil { // select would choose at random
		return fmt.Errorf("hybrid: flush: %w", err)
	}
	done := make(chan error, 1)
	begin := func() reconcile.Event { // only the stepping goroutine uses f
		d.lastReq++
		f.ID = d.lastReq
		d.waiting[f.ID] = done
		return f
	}
	select {
	case d.requests <- begin:
	case <-d.stop:
		return fmt.Errorf("hybrid: flush: %w", limit.ErrClosed)
	case <-ctx.Done():
		return fmt.Errorf("hybrid: flush: %w", ctx.Err())
	}
	select {
	case err := <-done:
		return err
	case <-d.stop:
		return fmt.Errorf("hybrid: flush: %w", limit.ErrClosed)
	case <-ctx.Done():
		d.request(func() reconcile.Event {
			delete(d.waiting, f.ID)
			return reconcile.Withdraw{ID: f.ID}
		})
		return fmt.Errorf("hybrid: flush: %w", ctx.Err())
	}
}

// pace returns the time of the timer clock, which is the system's. A test may stop the
// clock that checks are decided on; heartbeats must go on.
func pace() time.Duration { return clock.System{}.Now() }
