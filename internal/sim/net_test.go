package sim

import (
	"context"
	"errors"
	"io"
	"syscall"

	"github.com/hybridlimit/hybridlimit/internal/reconcile"
)

// rates are the probabilities with which messages fare badly, on all wires.
type rates struct {
	lossReq, lossRep float64 // lost before, and after, it was executed
	dup              float64 // delivered once more, later
	delay            float64 // late by up to delayMax
	cut              float64 // the connection breaks in the middle of a pipeline
	delayMax         int64
}

func (r *rates) none() bool {
	return r.lossReq+r.lossRep+r.delay+r.cut == 0
}

// wire is what may be wrong between one node and one server.
type wire struct {
	refuse  bool // connections are refused
	dropTo  bool // nothing gets there
	dropRep bool // nothing comes back
	mute    bool // batches are not answered, heartbeats are
}

var (
	errDown   = syscall.ECONNREFUSED
	errBroken = io.ErrUnexpectedEOF
	errLate   = context.DeadlineExceeded
	errOfKey  = errors.New("WRONGTYPE Operation against a key holding the wrong kind of value")
)

// latency draws the one-way time of a message.
func (s *sim) latency() int64 {
	d := s.far + 100_000 + s.rng.Int64N(400_000)
	if s.jitter > 0 {
		d += s.rng.Int64N(s.jitter + 1)
	}
	if s.chance(s.delay) {
		d += s.rng.Int64N(max(s.delayMax, 400*ms))
	}
	return d
}

// longest returns how long an exchange may have taken so far.
func (s *sim) longest() int64 { return max(s.patience, simTimeout) }

// part is what one server does of a call.
type part struct {
	server *simServer
	beat   bool        // of a heartbeat, not of batches
	steps  int         // scripts in the pipeline
	run    func(i int) // executes one of them, and keeps the answer
	accept func(i int) // the answer has come back
	fail   func(i int, err error)

	answered []bool
	done     bool
}

// call plays one exchange over the bad network: it ends when every part has,
// or at the deadline. answer makes the event of it, once it reaches the node;
// late says that the node has given up by then.
func (n *simNode) call(id uint64, timeout int64, pipeline bool, parts []*part, answer func(late bool, took int64) reconcile.Event) {
	s, open, over := n.s, len(parts), false
	s.patience = max(s.patience, timeout)
	s.after(timeout, func() {
		if over {
			return
		}
		over = true
		partly := false
		for _, p := range parts {
			partly = partly || p.done
		}
		if s.chance(0.5) || partly {
			// A client that keeps deadlines reports what it has got.
			for _, p := range parts {
				p.missing(errLate)
			}
			n.deliver(func() reconcile.Event { return answer(false, timeout) })
			return
		}
		n.deliver(func() reconcile.Event { return reconcile.TimedOut{ID: id} })
		if pipeline {
			s.after(s.latency(), func() { n.deliver(func() reconcile.Event { return reconcile.Freed{ID: id} }) })
		}
	})
	for _, p := range parts {
		p.answered = make([]bool, p.steps)
		n.starve(func() {
			began := s.now
			n.send(p, func() {
				if p.done {
					return
				}
				p.done = true
				if open--; open > 0 {
					return
				}
				n.starve(func() {
					late := over // then the core must not mind
					over = true
					took := s.now - began
					n.starve(func() { n.deliver(func() reconcile.Event { return answer(late, took) }) })
				})
			})
		})
	}
}

// starve does something when a goroutine of the process gets a processor.
func (n *simNode) starve(f func()) {
	if n.starved == 0 {
		f()
		return
	}
	n.s.after(n.starved, f)
}

// missing fails the steps that have no answer.
func (p *part) missing(err error) {
	for i, ok := range p.answered {
		if !ok {
			p.fail(i, err)
		}
	}
}

// send brings a part to its server and the answers back, or not.
func (n *simNode) send(p *part, done func()) {
	s, v, w := n.s, p.server, &n.wires[p.server.id]
	broken := func(err error) {
		s.after(s.latency(), func() {
			p.missing(err)
			done()
		})
	}
	epoch := v.epoch
	switch {
	case s.down || v.killed || w.refuse:
		broken(errDown)
		return
	case s.chance(s.lossReq) || w.dropTo:
		return
	}
	steps := p.steps
	if s.chance(s.cut) {
		steps = s.rng.IntN(p.steps + 1)
	}
	s.after(s.latency(), func() {
		v.arrive(func() {
			if s.down || v.killed || v.epoch != epoch {
				broken(errBroken)
				return
			}
			n.execute(p, steps, done, broken)
		})
	})
}

// execute runs the steps of a part that have reached the server.
func (n *simNode) execute(p *part, steps int, done func(), broken func(error)) {
	p.server.work(&job{
		steps: steps, run: p.run,
		done:   func() { n.executed(p, steps, done, broken) },
		broken: func() { broken(errBroken) },
	})
}

// executed brings back the answers to the steps of a part.
func (n *simNode) executed(p *part, steps int, done func(), broken func(error)) {
	s, v, w := n.s, p.server, &n.wires[p.server.id]
	epoch := v.epoch
	if s.chance(s.dup) {
		// A copy that was stuck somewhere: its answers reach nobody. It does not outlive its connection, so it
		// never reaches the server that takes over.
		s.after(s.latency()+s.rng.Int64N(3000*ms), func() {
			v.arrive(func() {
				if !v.killed && !s.down && v.epoch == epoch {
					v.work(&job{steps: steps, run: p.run, copy: true, done: func() {}, broken: func() {}})
				}
			})
		})
	}
	if s.chance(s.lossRep) || w.dropRep || w.mute && !p.beat {
		return
	}
	if steps < p.steps && s.chance(0.5) {
		broken(errBroken) // not even the answers that were given come back
		return
	}
	s.after(s.latency(), func() {
		if v.epoch != epoch {
			broken(errBroken)
			return
		}
		for i := range steps {
			p.answered[i] = true
			p.accept(i)
		}
		p.missing(errBroken)
		done()
	})
}
