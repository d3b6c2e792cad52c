package main

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/hybridlimit/hybridlimit/bench/internal/fleet"
	"github.com/hybridlimit/hybridlimit/internal/rig"
)

// load asks a subject at the pace of a row.
type load struct {
	row   row
	keys  []string
	draws []uint32
	next  int
	other []byte // what the service works on between checks
	at    int
	sum   byte
	// Of a measurement:
	took    []time.Duration // each check
	refused int
}

// otherWork is how much memory the service works on, more than a core's own cache, and
// workLines how many lines of it between two checks.
const (
	otherWork = 6 << 20
	workLines = 32
	line      = 64
)

// idleSettles is how long after the last check a limiter is left alone before it counts
// as idle: what is pending is reported by then. idleLasts is how long it is measured then at
// the least: some heartbeats, of which there is one a second.
const (
	idleSettles = 2 * time.Second
	idleLasts   = 5 * time.Second
)

// exponent is that of the Zipf distribution.
const exponent = 1.1

func newLoad(r row) *load {
	l := &load{row: r, draws: make([]uint32, 1<<20), other: make([]byte, otherWork)}
	for i := range r.keys {
		l.keys = append(l.keys, "user:"+strconv.Itoa(i))
	}
	rng := rand.New(rand.NewPCG(1, uint64(r.keys)))
	place := rng.Perm(r.keys) // popular keys do not lie side by side
	z := rand.NewZipf(rng, exponent, 1, uint64(r.keys-1))
	for i := range l.draws {
		if l.draws[i] = uint32(place[z.Uint64()]); r.kind == idle || r.kind == flatOut {
			l.draws[i] = uint32(i % r.keys)
		}
	}
	return l
}

// run asks for a time; measured says that each check is timed. It returns how many
// checks there were.
func (l *load) run(s *fleet.Fleet, d time.Duration, measured bool) (checks int) {
	if l.row.kind == flatOut {
		return l.runFlatOut(s, d)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	rate := l.row.rate
	if l.row.kind == idle {
		if measured {
			time.Sleep(max(d, idleLasts))
			return 0
		}
		rate, d = 2*l.row.keys, d/2 // all keys are asked, then nobody is
		defer time.Sleep(d + idleSettles)
	}
	for begun := rig.Now(); rig.Now()-begun < d; <-tick.C {
		for due := int(float64(rate) * (rig.Now() - begun).Seconds()); checks < due; checks++ {
			l.work()
			from := rig.Now()
			allowed := l.ask(s, checks)
			if measured {
				l.took = append(l.took, rig.Now()-from)
				l.count(allowed)
			}
		}
	}
	return checks
}

func (l *load) runFlatOut(s *fleet.Fleet, d time.Duration) (checks int) {
	for begun := rig.Now(); rig.Now()-begun < d; {
		for range 256 {
			l.count(l.ask(s, checks))
			checks++
		}
	}
	return checks
}

// ask asks the nodes in turn.
func (l *load) ask(s *fleet.Fleet, i int) bool {
	key := l.keys[l.draws[l.next&(len(l.draws)-1)]]
	l.next++
	return s.Ask[i%len(s.Ask)](key)
}

func (l *load) count(allowed bool) {
	if !allowed {
		l.refused++
	}
}

// work is what the service does besides.
func (l *load) work() {
	for range workLines {
		l.sum += l.other[l.at]
		l.at = (l.at + 97*line) % otherWork
	}
}
