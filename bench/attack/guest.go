package main

import (
	"container/heap"
	"math/rand/v2"
	"strconv"
	"time"
)

// group is a kind of guest, see the comment of the package.
type group int

const (
	honest group = iota
	fresh
	usedUp
	nearTried
	nearUntouched
	groups
)

// habit is how the guests of a group behave.
type habit struct {
	name  string
	keys  int   // how many guests there are
	taken int64 // what they take before the attack
	again bool  // they take what they miss of that at the beginning of each round
	units int64 // of each check
	meek  bool  // they ask only for what is left, so that no refusal is right
}

var habits = [groups]habit{
	honest:        {"honest", 1000, 2, false, 1, true},
	fresh:         {"new", 1000, 0, false, 1, true},
	usedUp:        {"used-up", 1000, 10, true, 1, false},
	nearTried:     {"near-tried", 500, 8, true, 3, false},
	nearUntouched: {"near-untouched", 500, 8, true, 10, false},
}

// middle is when untouched keys are asked for, as parts of a period.
var middle = span{0.2, 0.9}

// act is something that a guest does at a time.
type act struct {
	at    time.Duration
	key   string
	group group
	fill  bool          // takes what it has taken before; else it asks
	until time.Duration // asks again before this time; 0: does not
}

// schedule is acts, in the order of a heap of time.
type schedule []act

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].at < s[j].at }
func (s schedule) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *schedule) Push(x any)        { *s = append(*s, x.(act)) }
func (s *schedule) Pop() any {
	last := len(*s) - 1
	x := (*s)[last]
	*s = (*s)[:last]
	return x
}

// result is what has come of the checks of a group.
type result struct {
	Asked, Wrong int64 // checks that were right to admit, and those of them that were refused
	Due, Above   int64 // checks that were right to refuse, and those of them that were admitted
}

// guests are all keys of others than the attacker.
type guests struct {
	scenario
	rng      *rand.Rand
	take     func(key string, n int64) bool
	judge    *judge
	schedule schedule
	filled   []string // keys that have taken something
	results  [groups]result
}

func newGuests(s scenario, scale float64, rng *rand.Rand, take func(key string, n int64) bool, j *judge) *guests {
	g := &guests{scenario: s, rng: rng, take: take, judge: j}
	for of := range groups {
		for i := range max(int(float64(habits[of].keys)*scale), 10) {
			g.invite(of, habits[of].name+"/"+strconv.Itoa(i))
		}
	}
	heap.Init(&g.schedule)
	return g
}

// within returns a random part of a duration.
func (g *guests) within(s span, d time.Duration) time.Duration {
	return time.Duration((s.from + g.rng.Float64()*(s.to-s.from)) * float64(d))
}

// invite enters what a guest does, as far as that is known.
func (g *guests) invite(of group, key string) {
	end := g.length()
	add := func(a act) {
		if a.key, a.group = key, of; a.at < end {
			g.schedule = append(g.schedule, a)
		}
	}
	attacked := time.Duration(g.rounds) * g.pace
	switch of {
	case fresh:
		at := g.lead() + g.within(span{0, 1}, attacked)
		add(act{at: at, until: min(at+g.pace, end)})
		return
	case nearUntouched:
		for at := time.Duration(0); at < end; at += g.pace {
			add(act{at: at + g.lead() + g.within(middle, g.pace-g.lead())})
		}
	default:
		add(act{at: g.lead() + g.within(g.every, g.pace), until: end})
	}
	for at := time.Duration(0); at+g.lead() < end && (at == 0 || habits[of].again); at += g.pace {
		add(act{at: at + g.within(span{0, 0.9}, g.lead()), fill: true})
	}
}

// next returns when the next guest acts.
func (g *guests) next() time.Duration {
	if len(g.schedule) == 0 {
		return never
	}
	return g.schedule[0].at
}

// act lets all guests act whose time has come.
func (g *guests) act(now time.Duration) {
	for len(g.schedule) > 0 && g.schedule[0].at <= now {
		a := g.schedule[0]
		if a.fill {
			g.fill(a.group, a.key)
		} else {
			g.check(a.group, a.key)
		}
		if a.at = now + g.within(g.every, g.pace); a.at < a.until {
			g.schedule[0] = a
			heap.Fix(&g.schedule, 0)
		} else {
			heap.Pop(&g.schedule)
		}
	}
}

// fill takes what a key misses of what it had taken before the attack. A refusal does not count here.
func (g *guests) fill(of group, key string) {
	n := g.judge.left(key) - (g.rule.Limit() - habits[of].taken)
	if n > 0 && g.take(key, n) {
		g.judge.admitted(key, n)
		g.filled = append(g.filled, key)
	}
}

// check makes a check of a key and enters what is right and what has come of it.
func (g *guests) check(of group, key string) {
	n, r := habits[of].units, &g.results[of]
	right := g.judge.left(key) >= n
	if !right && habits[of].meek {
		return
	}
	admitted := g.take(key, n)
	switch {
	case right:
		r.Asked++
		if !admitted {
			r.Wrong++
		}
	default:
		r.Due++
		if admitted {
			r.Above++
		}
	}
	if right && admitted {
		g.judge.admitted(key, n)
	}
}
