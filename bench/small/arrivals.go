package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// arrival is a check.
type arrival struct {
	at   time.Duration // since the load began
	key  int
	node int
}

// traffic is the checks of a row, in the order of time. They are the same each time.
type traffic struct {
	arrivals []arrival
	names    []string // of the keys
	counted  int      // keys; those after them are only watched
}

// newTraffic draws the checks of so long a time.
func newTraffic(r row, length time.Duration) traffic {
	rng := rand.New(rand.NewPCG(uint64(r.limit), uint64(r.nodes)))
	t := traffic{}
	if r.pattern.span() > 0 {
		t.addBursts(rng, r, length)
	} else {
		t.addSteady(rng, r, length)
	}
	for i := range t.counted + r.watched() {
		t.names = append(t.names, "user:"+strconv.Itoa(i))
	}
	return t
}

// addSteady draws checks at a steady pace, each of any key: the checks of one key come as in a
// Poisson process, nearly.
func (t *traffic) addSteady(rng *rand.Rand, r row, length time.Duration) {
	t.counted = r.keys
	keys := t.counted + r.watched()
	pause := float64(time.Second) / (r.rate * float64(keys))
	for i := range int(float64(length) / pause) {
		a := arrival{time.Duration((float64(i) + rng.Float64()) * pause), rng.IntN(keys), rng.IntN(r.nodes)}
		if r.pattern == sticky {
			a.node = a.key % r.nodes
		}
		t.arrivals = append(t.arrivals, a)
	}
}

// addBursts draws bursts, each of a key that was never used.
func (t *traffic) addBursts(rng *rand.Rand, r row, length time.Duration) {
	t.counted = max(int(length.Seconds()*burstsPer), 1)
	for key := range t.counted {
		begin := time.Duration(key) * time.Second / burstsPer
		for range burstSize {
			t.arrivals = append(t.arrivals, arrival{begin + time.Duration(rng.Float64()*float64(r.pattern.span())), key, rng.IntN(r.nodes)})
		}
	}
	slices.SortFunc(t.arrivals, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
}

// watchedShare: there is one more key for so many, of which is measured how fast the nodes
// hear that it is used up. To ask that disturbs it, so that it is in no other figure but those
// of Redis.
const watchedShare = 20

// watched returns how many such keys a row has.
func (r row) watched() int {
	if r.pattern != random || r.nodes == 1 {
		return 0
	}
	return max(r.keys/watchedShare, 2)
}
