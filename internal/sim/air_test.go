package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
)

// simAir is Pub/Sub of the first server: it brings what a node publishes to all that have
// subscribed, the sender too. It has its own source of random numbers, so that a world without
// notices plays as it did before there were any. What is forged is in forged_test.go.
type simAir struct {
	s     *sim
	rng   *rand.Rand
	rates airRates
	delay int64 // not 0: each message arrives so much later, ns, unless the subscription has ended by then
	quiet bool  // nothing goes wrong any more
	subs  []*simSub
	made  int                 // ids of channels
	past  []reconcile.Message // the latest that were published, which may be copied
	names map[report.NoticeID]oracleKey
	known int // books in names
	// What a test wants to see or to keep from arriving. nil: nothing.
	filter func(to *simNode, m reconcile.Message) bool
}

// airRates are the probabilities with which messages fare badly.
type airRates struct {
	lost, late, twice float64
	denied            float64 // it cannot be published
	cut               float64 // a subscription breaks, in each second
	forged            float64 // messages a second
	lateMax           int64
}

// simSub is a node's subscription. Like the listener of the driver it tries again when it has
// ended.
type simSub struct {
	n             *simNode
	channel, echo string
	round         int // of efListen
	confirmed     bool
	epoch         int // of the server, when it was confirmed
}

const (
	subPause = 300 * ms // before a subscription is tried again
	airPast  = 64       // messages that are remembered
)

// withNotices has the nodes of a world tell and hear notices. Call it before there are any.
func (s *sim) withNotices() {
	s.air = &simAir{s: s, rng: rand.New(rand.NewPCG(s.seed, 0xa17)), names: map[report.NoticeID]oracleKey{}}
	s.opt.PollOnly = false
}

// withBadNotices is withNotices with faults, drawn from the seed.
func (s *sim) withBadNotices() {
	s.withNotices()
	a := s.air
	rate := func() float64 {
		if a.rng.IntN(2) == 0 {
			return 0
		}
		return a.rng.Float64() * a.rng.Float64()
	}
	a.rates = airRates{
		lost: rate(), late: rate(), twice: rate(), denied: rate() / 2, cut: rate() / 2, forged: 20 * rate(),
		lateMax: 1 + a.rng.Int64N(10_000*ms),
	}
	s.plan.say("notices: %+v", a.rates)
	a.second()
}

// second does what goes wrong by itself.
func (a *simAir) second() {
	a.s.after(1000*ms, func() {
		if a.quiet {
			return
		}
		for _, sub := range a.subs {
			if sub.confirmed && a.chance(a.rates.cut) {
				sub.end(errBroken)
			}
		}
		for left := a.rates.forged; left > 0; left-- {
			if a.rng.Float64() < left {
				a.s.after(a.rng.Int64N(1000*ms), a.forge)
			}
		}
		a.second()
	})
}

func (a *simAir) chance(p float64) bool { return !a.quiet && p > 0 && a.rng.Float64() < p }

// joins turns notices on in a node that starts.
func (a *simAir) joins(n *simNode) {
	ks := n.s.keyspace()
	n.link.SetNotices(1, ks.NoticeID)
	a.subs = append(a.subs, &simSub{n: n})
}

// channelOf returns the id of the channel in a server's database, a new one if it has none.
func (a *simAir) channelOf(m *modelRedis) string {
	if m.channel == "" {
		a.made++
		m.channel = fmt.Sprint("ch", a.made)
	}
	return m.channel
}

// reaches reports whether a node can use the first server.
func (a *simAir) reaches(n *simNode) bool {
	v := a.s.servers[0]
	return !n.dead && !a.s.down && !v.killed && n.wires[0] == (wire{})
}

// listen subscribes anew.
func (n *simNode) listen(e reconcile.Listen) {
	i := slices.IndexFunc(n.s.air.subs, func(sub *simSub) bool { return sub.n == n })
	sub := n.s.air.subs[i]
	sub.round++
	sub.confirmed, sub.channel, sub.echo = false, e.Channel, e.Node
	sub.begin(sub.round)
}

// begin tries to subscribe, again and again until it is confirmed.
func (sub *simSub) begin(round int) {
	n, s := sub.n, sub.n.s
	if sub.channel == "" || sub.round != round || n.dead {
		return
	}
	s.after(200_000+s.air.rng.Int64N(ms), func() {
		v := s.servers[0]
		switch {
		case sub.round != round:
		case !s.air.reaches(n) || v.frozen:
			sub.end(errDown)
		case s.air.chance(s.air.rates.denied):
			sub.end(noPermission{})
		default:
			sub.confirmed, sub.epoch = true, v.epoch
			n.deliver(func() reconcile.Event { return reconcile.Received{Confirmed: true} })
			sub.look(round)
		}
	})
}

// look ends a subscription whose server has closed its connections.
func (sub *simSub) look(round int) {
	s := sub.n.s
	s.after(100*ms, func() {
		switch {
		case sub.round != round || !sub.confirmed || sub.n.dead:
		case sub.epoch != s.servers[0].epoch || s.down:
			sub.end(errBroken)
		default:
			sub.look(round)
		}
	})
}

// end ends a subscription, or an attempt to begin one.
func (sub *simSub) end(err error) {
	n := sub.n
	sub.confirmed = false
	sub.round++
	round := sub.round
	n.deliver(func() reconcile.Event { return reconcile.Received{Err: err} })
	n.s.after(subPause/2+n.s.air.rng.Int64N(subPause), func() { sub.begin(round) })
}

// publish is what the first server does with a message of a node. Without notices it is an echo
// for the node alone.
func (a *simAir) publish(from *simNode, channel string, m reconcile.Message, echo uint64) error {
	if a.chance(a.rates.denied) {
		return noPermission{}
	}
	if len(m.Notices) > 0 {
		a.past = append(a.past, m)
		a.past = a.past[max(len(a.past)-airPast, 0):]
		a.s.note(from.id, "publishes", int64(len(m.Notices)), int64(m.Notices[0].Until))
	}
	for _, sub := range a.subs {
		v := a.s.servers[0]
		if !sub.confirmed || sub.channel != channel || sub.epoch != v.epoch || v.side(from) != v.side(sub.n) || echo != 0 && sub.n != from {
			continue
		}
		a.carry(sub.n, m, echo)
	}
	return nil
}

// carry brings a message to a node, or not, or late, or twice. It may arrive after the
// subscription has ended, or the database was lost.
func (a *simAir) carry(to *simNode, m reconcile.Message, echo uint64) {
	if a.filter != nil && !a.filter(to, m) || a.chance(a.rates.lost) {
		return
	}
	copies := 1
	if a.chance(a.rates.twice) {
		copies = 2
	}
	i := slices.IndexFunc(a.subs, func(sub *simSub) bool { return sub.n == to })
	round := a.subs[i].round
	for range copies {
		d := a.s.far + a.delay + 50_000 + a.rng.Int64N(400_000)
		if a.chance(a.rates.late) {
			d += a.rng.Int64N(a.rates.lateMax)
		}
		a.s.after(d, func() {
			if a.reaches(to) && (a.delay == 0 || a.subs[i].round == round) {
				to.hear(m, echo)
			}
		})
	}
}

// hear hands a message to a node.
func (n *simNode) hear(m reconcile.Message, echo uint64) {
	m.Notices = slices.Clone(m.Notices)
	n.deliver(func() reconcile.Event {
		ev := reconcile.Received{Echo: echo}
		if echo == 0 {
			ev.Messages = []reconcile.Message{m}
			n.s.oracle.noticed(n, m.Notices)
		}
		n.s.note(n.id, "hears", int64(len(m.Notices)), int64(echo))
		return ev
	})
}

// publish publishes notices in a call of their own.
func (n *simNode) tell(e reconcile.Publish) {
	var err error
	p := &part{
		server: n.s.servers[0], steps: 1,
		run: func(int) {
			if got := n.s.air.publish(n, e.Channel, reconcile.Message{Node: e.Node, Notices: e.Notices}, 0); !n.s.servers[0].copies {
				err = got
			}
		},
		accept: func(int) {},
		fail:   func(_ int, failed error) { err = failed },
	}
	n.call(e.ID, e.Timeout, false, []*part{p}, func(bool, int64) reconcile.Event { return reconcile.Published{ID: e.ID, Err: err} })
}

// keyOf returns the key that a notice is about.
func (a *simAir) keyOf(id report.NoticeID) (k oracleKey, ok bool) {
	if books := a.s.oracle.books; len(books) != a.known {
		for k, b := range books {
			a.names[redisstore.NoticeIDOf(b.name)] = k
		}
		a.known = len(books)
	}
	k, ok = a.names[id]
	return k, ok
}

// drawName draws the name in Redis of a key that is in use.
func (a *simAir) drawName() (k oracleKey, name string) {
	k = oracleKey{a.s.rules[a.rng.IntN(len(a.s.rules))], fmt.Sprint("key", a.rng.IntN(a.s.keys))}
	return k, a.s.keyspace().CounterKey(k.rule, k.key)
}

// silence ends what goes wrong, and waits for what is late.
func (a *simAir) silence() {
	a.quiet = true
	a.s.run(time.Duration(a.rates.lateMax) + time.Second)
}
