package main

import (
	"math/rand/v2"
	"strconv"
	"time"
)

// attack is what the attacker does from the beginning of each round on.
type attack struct {
	rate   float64       // keys a second
	length time.Duration // how long; 0: for the whole round
	checks int           // of each key
	units  int64         // of each check
	apart  time.Duration // between two checks of a key; 0: they come at once
	cycle  int           // how many keys there are, which come again and again; 0: each is new
	often  float64       // times in a round that each key of a cycle comes; 0: there is none
}

func steady(rate float64) attack { return attack{rate: rate} }

// burst is so many new keys at once.
func burst(keys int) attack {
	return attack{rate: float64(keys) / atOnce.Seconds(), length: atOnce}
}

// flood is new keys for a while, each with one unit.
func flood(rate float64, length time.Duration) attack {
	return attack{rate: rate, length: length, checks: 1, units: 1}
}

// twice is a flood that takes another unit of each key some time after the first.
func twice(rate float64, length, apart time.Duration) attack {
	return attack{rate: rate, length: length, checks: 2, units: 1, apart: apart}
}

// busy is so many keys that are used twice as often as honest ones.
func busy(keys int) attack {
	return attack{cycle: keys, often: 2 * 2 / (usual.from + usual.to)}
}

// attacker plays an attack. It is due again and again, and then makes the checks of a short time.
type attacker struct {
	attack
	ask   func(key string, units int64)
	rng   *rand.Rand
	order []int // of the keys of a cycle

	first, pace time.Duration // when the first round begins, and how long it is
	rounds      int

	round   int
	made    []int // checks of this round: first ones, second ones, ...
	checked int64 // of all rounds
}

// leastPause is the time between two moments at which an attacker acts.
const leastPause = 10 * time.Millisecond

// never is later than everything.
const never = time.Duration(1<<63 - 1)

func newAttacker(s scenario, scale float64, rng *rand.Rand, ask func(key string, units int64)) *attacker {
	a := &attacker{attack: s.attack, ask: ask, rng: rng, first: s.lead(), pace: s.pace, rounds: s.rounds}
	if a.length == 0 {
		a.length = a.pace
	}
	a.cycle = int(float64(a.cycle) * scale)
	a.rate *= scale
	if a.cycle > 0 {
		a.rate = float64(a.cycle) * a.often / a.pace.Seconds()
		a.order = rng.Perm(a.cycle)
	}
	waves := 1
	if a.apart > 0 {
		waves = a.checks
	}
	a.made = make([]int, waves)
	return a
}

// begin is when the present round begins.
func (a *attacker) begin() time.Duration { return a.first + time.Duration(a.round)*a.pace }

// keys is how many keys a round has.
func (a *attacker) keys() int { return int(a.rate * a.length.Seconds()) }

// next returns when the attacker acts next, after a time at which he has acted.
func (a *attacker) next(now time.Duration) time.Duration {
	if a.round == a.rounds {
		return never
	}
	if now < a.begin() {
		return a.begin()
	}
	return now + max(leastPause, time.Duration(float64(time.Second)/a.rate))
}

// act makes the checks that are due.
func (a *attacker) act(now time.Duration) {
	if a.round == a.rounds || now < a.begin() {
		return
	}
	done := true
	for wave := range a.made {
		since := now - a.begin() - time.Duration(wave)*a.apart
		due := min(int(a.rate*max(since, 0).Seconds()), a.keys())
		for ; a.made[wave] < due; a.made[wave]++ {
			a.check(a.name(a.made[wave]))
		}
		done = done && due == a.keys()
	}
	if done {
		a.round++
		clear(a.made)
	}
}

// check uses up a key, or makes one of its checks if they come one after the other.
func (a *attacker) check(key string) {
	n := a.checks
	if len(a.made) > 1 {
		n = 1
	}
	for range n {
		a.ask(key, a.units)
	}
	a.checked += int64(n)
}

// name returns the key that is the nth of the present round. The keys of a cycle come in another
// order each time.
func (a *attacker) name(n int) string {
	if a.cycle == 0 {
		return "attack/" + strconv.Itoa(a.round) + "/" + strconv.Itoa(n)
	}
	if n%a.cycle == 0 {
		a.rng.Shuffle(len(a.order), func(i, j int) { a.order[i], a.order[j] = a.order[j], a.order[i] })
	}
	return "attack/" + strconv.Itoa(a.order[n%a.cycle])
}
