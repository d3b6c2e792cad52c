package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/internal/oracle"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Small limits: how exact a fleet is, in a world without faults, beside one process that is
// asked the same at the same times. The rows are in small_rows_test.go.

// smallWait is added to each way of a message, so that round trips take 0.6 to 1.4 ms.
const smallWait = 200_000 // ns

// smallRow is a fleet, a rule, and how its keys are asked for.
type smallRow struct {
	nodes, keys int
	rule        *limit.Rule
	perSecond   float64       // checks of each key, exponential
	length      time.Duration // of the measurement
	sticky      bool          // a key is asked for on one node only
	burst       time.Duration // not 0: instead bursts within this time, on a rested key
	checks      int           // in a burst
	far         int64         // by how much longer than usual each way of a message takes, ns; 0: by smallWait
	jitter      int64         // and up to so much more, ns
	lead        bool          // just before a burst each node admits a unit, whose report may wait for others
	most        smallBounds
}

// smallBounds are maxima; 0: none.
type smallBounds struct{ admitted, fullest, worst, refused float64 }

// smallAsk is a check of one unit. All those of one series are of one key, and the fullest
// window is looked for in each series.
type smallAsk struct {
	at           int64
	node         int
	key, series  int
	onlyToBeSeen bool // not part of the measurement
}

// smallRun is a row that is played.
type smallRun struct {
	smallRow
	s     *sim
	rng   *rand.Rand
	alone map[int]*counter.Counter // by key, of the one process
	truth map[int]smallTruths      // by key
	fleet map[int][]int64          // when units were admitted, by series
	one   map[int][]int64          // by series

	wrong, admittedOne, admittedFleet int64
	oldest                            int64 // the longest that a unit was pending, ns
	scripts, keysSynced               uint64
	from                              int64
}

// smallFigures is what a row has measured.
type smallFigures struct {
	smallBounds               // admitted, fullest and worst are ÷ one process; refused is a share of what one process admits
	most        float64       // the fullest window in limits, mean over the series
	reports     float64       // keys a second
	scripts     float64       // script calls a second, with heartbeats
	oldest      time.Duration // the longest that a unit was pending
}

// playSmall plays a row from a seed.
func playSmall(r smallRow, seed uint64) smallFigures {
	s := emptySim(nil, seed, Options{Shards: 1}, 1, []*limit.Rule{r.rule})
	s.oracle.loose, s.far = true, cmp.Or(r.far, smallWait)
	s.jitter = r.jitter
	s.withNotices()
	for range r.nodes {
		s.addNode(Options{})
	}
	p := &smallRun{
		smallRow: r, s: s, rng: rand.New(rand.NewPCG(seed, 0x5a11)),
		alone: map[int]*counter.Counter{}, truth: map[int]smallTruths{}, fleet: map[int][]int64{}, one: map[int][]int64{},
	}
	s.run(3 * time.Second) // until all know how many they are
	asks := p.arrivals()
	p.from = s.now
	before, keys := s.calledScripts()
	looked := s.now
	for _, a := range asks {
		s.run(time.Duration(a.at - s.now))
		if s.now-looked >= 10*ms {
			looked = s.now
			p.look()
		}
		p.ask(a)
	}
	p.scripts, p.keysSynced = s.calledScripts()
	p.scripts, p.keysSynced = p.scripts-before, p.keysSynced-keys
	return p.figures()
}

// look notes how long units have been pending.
func (p *smallRun) look() {
	for _, n := range p.s.nodes {
		var sv counter.Survey
		for _, c := range n.counters {
			c.Survey(n.time(), &sv)
		}
		if sv.Oldest != 0 {
			p.oldest = max(p.oldest, n.time()-sv.Oldest)
		}
	}
}

// calledScripts returns how many script calls the nodes have made, and of how many keys.
func (s *sim) calledScripts() (calls, keys uint64) {
	for _, n := range s.nodes {
		calls += n.stats.Batches.Load() + n.stats.Beats.Load()
		keys += n.stats.KeysSynced.Load()
	}
	return calls, keys
}

// arrivals draws all checks of a row, in their order.
func (p *smallRun) arrivals() (list []smallAsk) {
	for key := range p.keys {
		if p.burst > 0 {
			list = append(list, p.bursts(key)...)
			continue
		}
		home := p.rng.IntN(p.nodes)
		for at := p.s.now; ; {
			at += int64(p.rng.ExpFloat64() / p.perSecond * 1e9)
			if at > p.s.now+int64(p.length) {
				break
			}
			node := p.rng.IntN(p.nodes)
			if p.sticky {
				node = home
			}
			list = append(list, smallAsk{at: at, node: node, key: key, series: key})
		}
	}
	slices.SortStableFunc(list, func(a, b smallAsk) int { return cmp.Compare(a.at, b.at) })
	return list
}

// bursts draws the bursts of a key: one is not measured, so that the key is known to some
// nodes, and each comes when the one before has not counted for a while.
func (p *smallRun) bursts(key int) (list []smallAsk) {
	rest := 2 * int64(arith.Of(p.rule).Horizon())
	at := p.s.now + p.rng.Int64N(rest)
	for series := key * 1000; at < p.s.now+int64(p.length); series++ {
		for node := range p.nodes {
			if p.lead {
				list = append(list, smallAsk{at: at - 2*ms, node: node, key: key, series: series, onlyToBeSeen: series == key*1000})
			}
		}
		for range p.checks {
			list = append(list, smallAsk{
				at: at + p.rng.Int64N(int64(p.burst)), node: p.rng.IntN(p.nodes), key: key, series: series,
				onlyToBeSeen: series == key*1000,
			})
		}
		at += rest + p.rng.Int64N(rest/2)
	}
	return list
}

// ask asks the fleet, and one process.
func (p *smallRun) ask(a smallAsk) {
	s, name := p.s, fmt.Sprint("key", a.key)
	if p.alone[a.key] == nil {
		p.alone[a.key] = newAlone(name, p.rule, nil, s.now)
		p.truth[a.key] = newSmallTruths(p.rule, smallClock+p.far)
	}
	truth := p.truth[a.key]
	room := truth.room(s.now)
	admitted := s.nodes[a.node].take(name, p.rule, 1).Allowed
	one, _, ok := allowAlone(p.alone[a.key], s.now, 1, p.rule)
	if !ok {
		s.failf("a counter died")
	}
	if admitted {
		truth.admit(s.now)
	}
	if a.onlyToBeSeen {
		return
	}
	if one {
		p.admittedOne++
		p.one[a.series] = append(p.one[a.series], s.now)
	}
	if admitted {
		p.admittedFleet++
		p.fleet[a.series] = append(p.fleet[a.series], s.now)
	} else if room {
		p.wrong++
	}
}

// figures sums a row up.
func (p *smallRun) figures() (f smallFigures) {
	fleet, worst := fullestOf(p.fleet, p.rule)
	one, worstOne := fullestOf(p.one, p.rule)
	seconds := float64(p.s.now-p.from) / 1e9
	f.admitted, f.refused = ratio(p.admittedFleet, p.admittedOne), ratio(p.wrong, p.admittedOne)
	f.fullest, f.worst, f.most = fleet/one, worst/worstOne, fleet
	f.oldest = time.Duration(p.oldest)
	f.reports, f.scripts = float64(p.keysSynced)/seconds, float64(p.scripts)/seconds
	return f
}

func ratio(a, b int64) float64 { return float64(a) / float64(b) }

// fullestOf returns the fullest true window of each series in limits: the mean and the worst.
func fullestOf(series map[int][]int64, r *limit.Rule) (mean, worst float64) {
	for _, list := range series {
		part := float64(oracle.Fullest(list, int64(r.Period()))) / float64(r.Limit())
		mean, worst = mean+part/float64(len(series)), max(worst, part)
	}
	return mean, worst
}

// smallTruths are the same by clocks that differ by as much as a node may misjudge that of Redis. A
// unit near the end of a bucket of a window may count in either of two, and one at the end of a
// bucket changes when all others of it leave.
type smallTruths []*smallTruth

// smallClock is by how much a node may misjudge Redis' clock that is nearby, in ns: by half of a round trip.
const smallClock = 700_000

func newSmallTruths(r *limit.Rule, clock int64) (list smallTruths) {
	for _, shift := range []int64{0, -clock, clock} {
		list = append(list, &smallTruth{rule: r, shift: shift, window: limittest.NewReference(r)})
	}
	return list
}

func (list smallTruths) admit(now int64) {
	for _, t := range list {
		t.admit(now + t.shift)
	}
}

// room reports whether one unit more fits, by each of the clocks.
func (list smallTruths) room(now int64) bool {
	for _, t := range list {
		if !t.room(now + t.shift) {
			return false
		}
	}
	return true
}

// smallTruth counts what a fleet has admitted of a key, as one process would that has admitted
// the same. What that has room for is refused wrongly.
type smallTruth struct {
	rule   *limit.Rule
	shift  int64   // of its clock, ns
	tat    float64 // of a leaky bucket, ns of true time
	window *limittest.Reference
}

func (t *smallTruth) admit(now int64) {
	if arith.Of(t.rule).Algorithm == arith.TokenBucket {
		t.tat = max(t.tat, float64(now-simStart)) + unit(t.rule)
		return
	}
	t.window.Add(now, 1)
}

// room reports whether one unit more fits.
func (t *smallTruth) room(now int64) bool {
	if arith.Of(t.rule).Algorithm == arith.TokenBucket {
		level := max(t.tat-float64(now-simStart), 0)
		return level+unit(t.rule) <= float64(t.rule.Limit())*unit(t.rule)+1 // a rounded ns
	}
	return t.window.Fits(now, 1)
}

const smallHead = "                                                                             admitted   fullest     worst   fullest   refused   reports   scripts\n" +
	"                                                                                ÷ one     ÷ one     ÷ one   ÷ limit   wrongly    keys/s       1/s\n"

func (f smallFigures) String() string {
	return fmt.Sprintf("%10.3f%10.3f%10.3f%10.3f%9.2f%%%10.1f%10.1f", f.admitted, f.fullest, f.worst, f.most, 100*f.refused, f.reports, f.scripts)
}

// above returns what is more than the bounds, in words.
func (b smallBounds) above(most smallBounds) (out []string) {
	for _, c := range []struct {
		what      string
		got, most float64
	}{
		{"admitted ÷ one process", b.admitted, most.admitted}, {"fullest window, mean ÷ one process", b.fullest, most.fullest},
		{"fullest window, worst ÷ one process", b.worst, most.worst}, {"refused wrongly", b.refused, most.refused},
	} {
		if c.most > 0 && c.got > c.most {
			out = append(out, fmt.Sprintf("%s: %.3f, at most %.3f", c.what, c.got, c.most))
		}
	}
	return out
}

// TestSimSmallLimits holds each row to its maxima. With -v it prints what each has measured.
func TestSimSmallLimits(t *testing.T) {
	oneGoroutine(t)
	var table strings.Builder
	for _, r := range smallRows {
		if r.nodes > 100 && testing.Short() {
			continue
		}
		f := playSmall(r, *simSeed)
		name := fmt.Sprintf("%d nodes, %v, %d in %v, sticky %v", r.nodes, r.rule, r.checks, r.burst, r.sticky)
		fmt.Fprintf(&table, "%-75s%v\n", name, f)
		for _, what := range f.above(r.most) {
			t.Errorf("%s: %s", name, what)
		}
	}
	t.Logf("\n%s%s", smallHead, &table)
}
