package main

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/rig"
)

// options is what the command line says.
type options struct {
	scale float64 // of keys, room and rates
	seed  uint64
}

// defaultMaxKeys is MaxKeys of limiters that are not told.
const defaultMaxKeys = 65_536

// The least room of a table above its MaxKeys, and the usual one as a part of it.
const (
	leastSlack = 4096
	usualSlack = 0.25
)

// room returns MaxKeys of the limiter of a row, and what part of the attack's keys and of the guests
// there are. A small table has more than the usual room above MaxKeys, so that this is another part.
func (o options) room(s scenario) (maxKeys int, scale float64) {
	size := func(keys int) float64 {
		return float64(keys) + max(usualSlack*float64(keys), leastSlack)
	}
	scale = o.scale
	if s.place == embedded {
		scale *= embeddedPart
	}
	maxKeys = int(scale * defaultMaxKeys)
	return maxKeys, size(maxKeys) / size(defaultMaxKeys)
}

// measurement is a row and what has come of it.
type measurement struct {
	scenario
	outcome
	took time.Duration // in real time
}

// outcome is what has come of a row. Its names are those of a file, see virtual.
type outcome struct {
	Results [groups]result
	Checks  int64 // by the attacker
	Figures figures
	Heap    uint64 // bytes alive at the most, above those before
}

// stage is where a row is played.
type stage struct {
	clock   clock.Clock
	pass    func(at time.Duration) // lets time pass until so long after the beginning
	subject subject
}

// measure plays a row where it belongs.
func (o options) measure(ctx context.Context, s scenario) (m *measurement, err error) {
	from := rig.Now()
	switch s.place {
	case embedded:
		m, err = o.virtual(ctx, s)
	case onServer:
		m, err = o.realtime(ctx, s)
	default:
		m, err = o.alone(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	m.took = rig.Now() - from
	return m, nil
}

// alone plays a row without Redis. Time passes only from event to event.
func (o options) alone(ctx context.Context, s scenario) (*measurement, error) {
	keys, scale := o.room(s)
	c := clock.NewManual(dawn)
	lim, err := newProcess(c, s.rule, keys)
	if err != nil {
		return nil, err
	}
	pass := func(at time.Duration) { c.Set(dawn.Add(at)) }
	return o.play(ctx, s, stage{c, pass, lim}, scale)
}

// dawn is when a row begins: at the beginning of a day, so that a quota does too.
var dawn = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// play lets the attacker and the guests act in the order of time. It closes the subject.
func (o options) play(ctx context.Context, s scenario, on stage, scale float64) (*measurement, error) {
	defer on.subject.close()
	j, err := newJudge(on.clock, s.rule)
	if err != nil {
		return nil, err
	}
	defer j.close()
	rng := o.rand(s, "guests")
	g := newGuests(s, scale, rng, on.subject.ask, j)
	a := newAttacker(s, scale, rng, func(key string, n int64) { on.subject.ask(key, n) })
	h := newHeap()
	for now, look, warm := time.Duration(0), time.Duration(0), false; now < s.length(); {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		on.pass(now)
		if !warm && now >= s.lead() {
			if err := on.subject.warm(g.filled); err != nil {
				return nil, err
			}
			if warm = true; s.starved {
				defer starve()() // before the subject is closed
			}
		}
		on.subject.cut(s.isAway(now))
		a.act(now)
		g.act(now)
		if now >= look {
			h.look()
			look = now + s.pace/20
		}
		now = min(a.next(now), g.next(), s.length())
	}
	h.look()
	return &measurement{scenario: s, outcome: outcome{g.results, a.checked, on.subject.figures(), h.most - h.before}}, nil
}

// rand returns what is left to chance in a part of a row.
func (o options) rand(s scenario, part string) *rand.Rand {
	return rand.New(rand.NewPCG(o.seed, hash(s.name+part)))
}

func hash(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text)) // never fails
	return h.Sum64()
}

// heapWatch knows how many bytes were alive at the most, as the latest garbage collection has found.
type heapWatch struct {
	before, most uint64
}

func newHeap() *heapWatch {
	runtime.GC()
	h := &heapWatch{}
	h.look()
	h.before = h.most
	return h
}

func (h *heapWatch) look() {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	h.most = max(h.most, sample[0].Value.Uint64())
}
