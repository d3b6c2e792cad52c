package table

import (
	"cmp"
	"runtime"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/limit"
)

// FewChecks is how many checks can be asked together without an allocation.
const FewChecks = 4

// allTries bounds how often counters are looked up again because one was
// forgotten before all were locked. To reach it takes an eviction each time.
const allTries = 1000

// asked is one of several checks, and its counter.
type asked struct {
	c     *Counter
	check int   // index of the check
	total int64 // units that must fit for it: those of all checks of c
	twin  bool  // an earlier check has the same counter
}

// TakeAll consumes what all of the checks ask for if each of them admits it,
// else nothing, and puts the answer of each into out, which is as long as
// checks. Checks of one counter must be admitted together. Those under a dry run
// (see [limit.Rule.DryRun]) never stand in the way.
func (t *Table) TakeAll(checks []limit.Check, now int64, out []limit.Result) (v limit.AllResult) {
	var few [FewChecks]asked
	v = decision.None()
	for try := range allTries {
		list := few[:0]
		for i := range checks {
			list = append(list, asked{c: t.lookup(&checks[i], now, try > 0), check: i})
		}
		if wake, ok := t.takeTogether(list, checks, now, out); ok {
			if wake {
				t.link.signal()
			}
			for i := range checks {
				decision.Add(&v, i, checks[i].Rule, out[i])
			}
			return v
		}
		runtime.Gosched()
	}
	// The counters could not be locked together: refuse, which is the safe side.
	for i := range checks {
		out[i] = limit.Result{Limit: checks[i].Rule.Limit(), RetryAfter: closedRetry}
		decision.Add(&v, i, checks[i].Rule, out[i])
	}
	return v
}

// TakeAllOf is [Table.TakeAll] for callers who keep counters themselves, such as a
// simulator: counters are those of the checks. ok is false if one is dead.
func TakeAllOf(counters []*Counter, checks []limit.Check, now int64, out []limit.Result) (ok bool) {
	list := make([]asked, len(checks))
	for i, c := range counters {
		list[i] = asked{c: c, check: i}
	}
	wake, ok := new(Table).takeTogether(list, checks, now, out)
	if wake {
		counters[0].link().signal()
	}
	return ok
}

// lookup returns the counter of a check. It may be dead by the time it is locked: then call
// lookup again, with again set.
func (t *Table) lookup(q *limit.Check, now int64, again bool) *Counter {
	h, print := t.hashOf(q.Key, q.Rule)
	t.names.See(q.Rule)
	if !again {
		if c := t.index.search(h, print).counterOf(q.Key, q.Rule); c != nil {
			return c
		}
	}
	f := t.find(h, print, q.Key, q.Rule, now, true)
	f.leave()
	return f.c
}

// takeTogether decides the checks in one step. ok is false if a counter was
// dead; then nothing has happened.
func (t *Table) takeTogether(list []asked, checks []limit.Check, now int64, out []limit.Result) (wake, ok bool) {
	// All callers lock in one order, so that there is no deadlock. Only overflow
	// counters may be equal in it.
	slices.SortStableFunc(list, before)
	if twinned(list, checks) {
		t.crowd.Lock()
		defer t.crowd.Unlock()
	}
	locked, alive := 0, true
	for ; locked < len(list) && alive; locked++ {
		if a := &list[locked]; !a.twin {
			a.c.lock(now)
			alive = !a.c.dead
		}
	}
	if alive {
		wake = decideTogether(list, checks, now, out)
	}
	for i := range list[:locked] {
		if !list[i].twin {
			list[i].c.unlock()
		}
	}
	return wake, alive
}

// before orders counters.
func before(a, b asked) int {
	if a.c.hash != b.c.hash {
		return cmp.Compare(a.c.hash, b.c.hash)
	}
	return cmp.Or(cmp.Compare(a.c.alg(), b.c.alg()),
		cmp.Compare(a.c.Key(), b.c.Key()), cmp.Compare(a.c.name(), b.c.name()))
}

// twinned marks the checks that share a counter with an earlier one, and sums up the
// units of each counter; a dry run comes after the others. It reports whether two
// counters have no order.
func twinned(list []asked, checks []limit.Check) (unordered bool) {
	for i := range list {
		a := &list[i]
		dry := checks[a.check].Rule.IsDryRun()
		for j := range list {
			b := &list[j]
			switch {
			case b.c == a.c:
				a.twin = a.twin || j < i
				if q := &checks[b.check]; dry || !q.Rule.IsDryRun() {
					a.total = min(a.total+min(q.Units(), algorithm.MaxUnits), algorithm.MaxUnits)
				}
			case before(*a, *b) == 0:
				unordered = true
			}
		}
	}
	return unordered
}

// decideTogether is takeTogether with all counters locked. Most checks are admitted: what
// remains is then computed once, after the units have been counted.
func decideTogether(list []asked, checks []limit.Check, now int64, out []limit.Result) (wake bool) {
	all := true
	for i := range list {
		a := &list[i]
		rule := checks[a.check].Rule
		at := a.c.enterLocked(now, rule)
		res := &out[a.check]
		if a.c.decideLocked(at, a.total, false) {
			*res = limit.Result{Allowed: true, Source: a.c.sourceLocked()}
			continue
		}
		*res = rule.Judged(a.c.describeLocked(at, a.total, false))
		all = all && res.Allowed
	}
	for i := range list {
		a := &list[i]
		q, res := &checks[a.check], &out[a.check]
		if at := a.c.enterLocked(now, q.Rule); all && !res.WouldRefuse {
			a.c.bookLocked(at, q.Units())
			src := res.Source
			*res = a.c.describeLocked(at, q.Units(), true)
			res.Source = src
		} else if res.Allowed && !res.WouldRefuse {
			*res = a.c.describeLocked(at, a.total, true)
		}
		if a.c.link() != nil && a.c.noteLocked() {
			wake = true
		}
	}
	return wake
}

// bookLocked counts n units, whether they fit or not.
func (c *Counter) bookLocked(now, n int64) {
	w := modeWeight(c.mode())
	c.state().Book(c.rule(), now, n, c.rule().Weigh(n, w), w)
	c.indebtLocked(n)
}
