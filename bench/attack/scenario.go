package main

import (
	"regexp"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// place says what a limiter shares its units through.
type place int

const (
	alone    place = iota // package local
	embedded              // package hybrid with an embedded Redis, in virtual time
	onServer              // package hybrid with a redis-server, in real time
)

// bounds are what the figures of a row must not exceed, as parts of one.
type bounds struct{ honest, fresh, above float64 }

// scenario is a row of the table.
type scenario struct {
	name   string
	place  place
	nodes  int
	rule   *limit.Rule
	attack attack
	bounds bounds

	rounds int           // periods of attack
	pace   time.Duration // what the guests and rounds take for a period; the rule's, except in real time
	every  span          // between two checks of a guest, as parts of pace
	after  float64       // how long the guests are watched after the attack, as a part of pace
	away   time.Duration // how long Redis is away from the beginning of each round of attack

	starved bool // other work takes all processors
}

// span is a range.
type span struct{ from, to float64 }

// The share of above is another with Redis, which has the units of a key that was forgotten.
const (
	aboveAlone  = 0.01
	aboveShared = 0.001
	aboveAway   = 0.01
)

// embeddedPart is what part of the keys, the room and the rates the rows with an embedded Redis have,
// which takes a tenth of a millisecond for a key. It is the least for which the room above MaxKeys
// has the usual share.
const embeddedPart = 0.25

// limits are the rules of the rows.
var (
	minute = limit.Must(limit.SlidingWindow("attack", 10, time.Minute))
	hour   = limit.Must(limit.SlidingWindow("attack", 10, time.Hour))
	day    = limit.Must(limit.Quota("attack", 10, limit.Calendar{Unit: limit.Day}))
)

// usual is how often guests ask: every tenth to sixth of a period.
var usual = span{1. / 10, 1. / 6}

// atOnce is how long an attack takes that comes at once.
const atOnce = 10 * time.Second

// both returns a row for each of the ways to use up a key: one check of 10 units, or ten of one.
func both(s scenario) []scenario {
	one, ten := s, s
	one.attack.checks, one.attack.units, one.name = 1, 10, s.name+"/1x10"
	ten.attack.checks, ten.attack.units, ten.name = 10, 1, s.name+"/10x1"
	return []scenario{one, ten}
}

// rows returns all rows, in the order of the table.
func rows() (list []scenario) {
	for _, s := range keyRows() {
		list = append(list, both(s.withDefaults())...)
	}
	for _, s := range list {
		s.name, s.place, s.bounds.above = s.name+"/redis", embedded, aboveShared
		list = append(list, s)
	}
	for _, s := range redisRows() {
		list = append(list, s.withDefaults())
	}
	return list
}

// keyRows returns the rows that say something with and without Redis.
func keyRows() []scenario {
	return []scenario{
		{name: "fault", rule: hour, attack: burst(90_000), bounds: bounds{0.01, 0.05, aboveAlone}, rounds: 1, every: span{8. / 60, 8. / 60}},
		{name: "minute-2000", rule: minute, attack: steady(2000), bounds: bounds{0.001, 0.05, aboveAlone}, after: 1},
		{name: "hour-40", rule: hour, attack: steady(40), bounds: bounds{0.001, 0.05, aboveAlone}, after: 1},
		{name: "day-1.5", rule: day, attack: steady(1.5), bounds: bounds{0.001, 0.05, aboveAlone}, after: 1},
		{name: "once-90000", rule: hour, attack: burst(90_000), bounds: bounds{0.01, 0.05, aboveAlone}, after: 1},
		{name: "once-1000000", rule: hour, attack: burst(1_000_000), bounds: bounds{0.02, 0.10, aboveAlone}, after: 1},
		{name: "busy-82000", rule: hour, attack: busy(82_000), bounds: bounds{0.01, 0.05, aboveAlone}, after: 1},
	}
}

// redisRows returns the rows that there are only with Redis.
func redisRows() (list []scenario) {
	nodes := scenario{name: "nodes-50000", place: onServer, nodes: 2, rule: hour, attack: flood(50_000, 30*time.Second),
		bounds: bounds{0.001, 0.05, aboveShared}, rounds: 1, pace: 30 * time.Second, after: 1}
	starved := nodes
	starved.name, starved.starved, starved.bounds.honest = "nodes-50000-starved", true, 0.01
	unreported := scenario{name: "unreported-10000", place: embedded, rule: hour, attack: twice(10_000, 12*time.Second, 200*time.Millisecond),
		bounds: bounds{0.001, 0.05, aboveShared}, after: 1}
	away := scenario{name: "away-2000", place: embedded, rule: hour, attack: flood(2000, awayFor),
		bounds: bounds{0.01, 0.10, aboveAway}, after: 1, away: awayFor}
	full := away
	full.name, full.attack = "away-90000", burst(90_000)
	return append([]scenario{nodes, starved, unreported, away}, both(full)...)
}

// awayFor is how long Redis is away in the rows of an outage.
const awayFor = 10 * time.Minute

// withDefaults fills in what most rows have in common.
func (s scenario) withDefaults() scenario {
	if s.nodes == 0 {
		s.nodes = 1
	}
	if s.rounds == 0 {
		s.rounds = 2
	}
	if s.pace == 0 {
		s.pace = s.rule.Period()
	}
	if s.every == (span{}) {
		s.every = usual
	}
	return s
}

// lead is the time between the beginning of a round and its attack, in which guests take what they
// have taken before.
func (s scenario) lead() time.Duration { return s.pace / 20 }

// length is how long the row takes, in the time of its limiters.
func (s scenario) length() time.Duration {
	return s.lead() + time.Duration((float64(s.rounds)+s.after)*float64(s.pace))
}

// isAway reports whether Redis is away at a time.
func (s scenario) isAway(at time.Duration) bool {
	at -= s.lead()
	return at >= 0 && int(at/s.pace) < s.rounds && at%s.pace < s.away
}

// selected returns the rows that a pattern and the flag of Redis leave.
func selected(list []scenario, pattern *regexp.Regexp, redis bool) (some []scenario) {
	for _, s := range list {
		if pattern.MatchString(s.name) && (redis || s.place == alone) {
			some = append(some, s)
		}
	}
	return some
}
