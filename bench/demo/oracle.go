package main

import (
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The oracle judges a run by what was offered and admitted in each slot, and
// by when Redis was away and when the nodes said they had noticed. It knows
// the promise, not the algorithm. In any window of length W that begins at a
// slot, N nodes may admit at most
//
//	L + ⌈L/B⌉ + N + Σ over all nodes j but the quietest of min(L, slack_j)
//
// L is the limit, and B the number of buckets of a window: as many units of the
// oldest one may leave too soon. N: per node, one unit may be written down too
// early. slack_j is what the others
// could not know of node j; it is the sum of
//
//   - 2·r_j·(S+δ), in windows in which a node goes by what Redis said: j's
//     units of two sync intervals S that each end in a sync of length δ. The
//     demo measures: r_j·(S+δ) is the most that j was asked in any span of
//     that length in the window, and δ twice the longest exchange (a report
//     may have to wait for one that is under way) plus the longest delay of a
//     1 ms timer (the machine may be busy), of those that can have mattered in
//     the slot. δ is at most CommandTimeout; what takes longer is an outage;
//   - what j was asked while Redis was away and not all nodes had noticed.
//     Noticing takes up to DegradeAfter·(CommandTimeout + retry), that is 2 ·
//     (250 + 45) ms if Redis is silent, and much less if it refuses. Nobody is
//     judged by that time: it is measured;
//   - L/N in windows in which Redis is there and not all nodes are synced:
//     a node that is back shares the whole limit with those that are back,
//     and does not know what the others still admit by their fair shares.
//
// When all nodes are on their own (FairShare), slack is 0: that is the promise
// for outages. A Redis that comes back empty changes nothing: nodes keep what
// they know.

// circumstance is what a slot's admissions are judged by.
type circumstance struct {
	alone     bool          // Redis is away and every node has noticed
	blind     bool          // exchanges fail and some node has not noticed
	returning bool          // Redis is there and some node is not synced
	age       time.Duration // S+δ: how old a view may be, if not for the above
}

// past is what is known of a run besides admissions.
type past struct {
	start  time.Duration
	down   []span
	nodes  [][]change
	failed []span // exchanges that failed while Redis was there
	slow   []span // exchanges that went well but took long
	stalls []span // late timers
}

// retryMargin is how long after a failed exchange its batch may be on its way
// again.
const retryMargin = 2 * interval

// circumstances returns those of each slot.
func (p past) circumstances(slots int) []circumstance {
	out := make([]circumstance, slots)
	for i := range out {
		s := span{p.start + time.Duration(i)*slot, p.start + time.Duration(i+1)*slot}
		c := &out[i]
		c.age = p.age(s)
		if s.touches(p.down) {
			c.alone = p.all(hybrid.Degraded, s) && s.within(p.down)
			c.blind = !c.alone
			continue
		}
		c.returning = !p.all(hybrid.Synced, s)
		c.blind = span{s.from - retryMargin, s.to}.touches(p.failed)
	}
	return out
}

// age returns lag+S+δ in s. What a view lacks there has come about in the last
// two lags, intervals and syncs.
func (p past) age(s span) time.Duration {
	s.from -= 2 * (lag + interval + commandTimeout)
	return lag + interval + min(2*s.longest(p.slow)+s.longest(p.stalls), commandTimeout)
}

// longest returns the length of the longest of others that touches s; all
// shorter than slowFrom are not among them.
func (s span) longest(others []span) time.Duration {
	top := slowFrom
	for _, o := range others {
		if s.touches([]span{o}) {
			top = max(top, o.length())
		}
	}
	return top
}

func (s span) within(others []span) bool {
	for _, o := range others {
		if o.from <= s.from && s.to <= o.to {
			return true
		}
	}
	return false
}

// all tells whether every node was in a mode during all of s.
func (p past) all(m hybrid.Mode, s span) bool {
	for _, history := range p.nodes {
		if !settled(history, m, s) {
			return false
		}
	}
	return true
}

// settled tells whether a node was in a mode during all of s: it had said so
// before, and left it after.
func settled(history []change, m hybrid.Mode, s span) bool {
	in := false
	for _, c := range history {
		if c.told <= s.from {
			in = c.mode == m
		} else if c.since < s.to {
			return false
		}
	}
	return in
}

// oracle judges one key. live and back are running sums: element i
// is the sum over the slots before i.
type oracle struct {
	limit  int64
	share  int64 // one bucket's of the limit
	window int   // slots
	slots  int
	live   []int64 // slots in which a node goes by what Redis said
	back   []int64 // slots in which nodes return
	nodes  []ledgerOfNode
}

// ledgerOfNode is what a node was asked, all in all and while blind, and what
// it admitted. peak[i] is the most it was asked in any span of S+δ that ends in
// the window before slot i; it is no sum.
type ledgerOfNode struct {
	offered, blind, admitted []int64
	peak                     []int64
}

// newOracle takes each node's record of a key.
func newOracle(rule *limit.Rule, records []record, circ []circumstance) *oracle {
	n := len(circ)
	o := &oracle{limit: rule.Limit(), share: arith.Of(rule).Share, window: int(rule.Period() / slot), slots: n}
	o.live = sums(n, func(i int) int64 { return bit(!circ[i].alone) })
	o.back = sums(n, func(i int) int64 { return bit(circ[i].returning) })
	for _, r := range records {
		l := ledgerOfNode{
			offered:  sums(n, func(i int) int64 { return at(r.offered, i) }),
			blind:    sums(n, func(i int) int64 { return at(r.offered, i) * bit(circ[i].blind) }),
			admitted: sums(n, func(i int) int64 { return at(r.admitted, i) }),
		}
		l.peak = slidingMax(n, o.window, func(i int) int64 {
			// A span of so many whole slots covers one of the age wherever that begins.
			age := int((circ[i].age+slot-1)/slot) + 1
			return l.offered[i+1] - l.offered[max(i+1-age, 0)]
		})
		o.nodes = append(o.nodes, l)
	}
	return o
}

func sums(n int, f func(int) int64) []int64 {
	out := make([]int64, n+1)
	for i := range n {
		out[i+1] = out[i] + f(i)
	}
	return out
}

func at(v []int64, i int) int64 {
	if i < len(v) {
		return v[i]
	}
	return 0
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// slidingMax returns for each i the largest f of up to so many arguments before
// i. falling holds those that may still be the largest of some window.
func slidingMax(n, window int, f func(int) int64) []int64 {
	out := make([]int64, n+1)
	values := make([]int64, n)
	var falling []int
	for i := range n {
		values[i] = f(i)
		for len(falling) > 0 && values[falling[len(falling)-1]] <= values[i] {
			falling = falling[:len(falling)-1]
		}
		falling = append(falling, i)
		if falling[0] <= i-window {
			falling = falling[1:]
		}
		out[i+1] = values[falling[0]]
	}
	return out
}

// judge returns what was admitted in the window that ends before a slot, and
// what may have been. A window that reaches back before the run is cut there.
func (o *oracle) judge(end int) (admitted, bound int64) {
	from := max(end-o.window, 0)
	var slack int64
	quietest := o.limit
	for _, n := range o.nodes {
		admitted += n.admitted[end] - n.admitted[from]
		s := o.slack(n, from, end)
		slack += s
		quietest = min(quietest, s)
	}
	return admitted, o.limit + o.share + int64(len(o.nodes)) + slack - quietest
}

func (o *oracle) slack(n ledgerOfNode, from, end int) int64 {
	sum := n.blind[end] - n.blind[from]
	if o.live[end] > o.live[from] {
		sum += 2 * n.peak[end]
	}
	if o.back[end] > o.back[from] {
		sum += o.limit / int64(len(o.nodes))
	}
	return min(sum, o.limit)
}

// finding is the fullest window among some, and the one that came closest to
// its bound or went furthest above.
type finding struct {
	admitted, bound int64 // of the fullest
	broken          int   // windows above their bound
	worstEnd        int   // of the one that is furthest above
	worst, allowed  int64
	top             int64 // largest bound
	starved         int   // windows in which every node was asked for more than its share and too little was admitted
	least           int64 // admitted in the emptiest of them
}

// windows judges all windows that end in a slot of from to to.
func (o *oracle) windows(from, to int) (f finding) {
	for end := from + 1; end <= min(to, o.slots); end++ {
		n, bound := o.judge(end)
		f.top = max(f.top, bound)
		if least := o.limit * leastPercent / 100; n < least && o.crowded(end) {
			if f.starved++; f.starved == 1 || n < f.least {
				f.least = n
			}
		}
		if n > f.admitted || f.bound == 0 {
			f.admitted, f.bound = n, bound
		}
		if n <= bound {
			continue
		}
		f.broken++
		if n-bound > f.worst-f.allowed {
			f.worst, f.allowed, f.worstEnd = n, bound, end
		}
	}
	return f
}

// leastPercent is how much of a limit must at least be admitted in a window in
// which every node is asked for more than its share: a limiter that refuses
// everything keeps every upper bound.
const leastPercent = 60

// crowded tells whether every node was asked for half as much again as its
// share of the limit, in each quarter of the window that ends before a slot and
// of the one before that: on a machine that is too busy, requests come in
// bursts, of which the later find the window full.
func (o *oracle) crowded(end int) bool {
	quarter := max(o.window/4, 1)
	for at := end; at > end-2*o.window; at -= quarter {
		if at < quarter {
			return false
		}
		for _, n := range o.nodes {
			asked := n.offered[at] - n.offered[at-quarter]
			if asked*int64(len(o.nodes)*o.window)*2 < o.limit*int64(quarter)*3 {
				return false
			}
		}
	}
	return true
}
