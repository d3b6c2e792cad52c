package counter

import (
	"cmp"
	"slices"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Asked is one of several checks, with its counter.
type Asked struct {
	Counter *Counter
	Check   int   // index of the check
	total   int64 // units that must fit for this check: those of all checks of its counter
	again   bool  // an earlier check has the same counter
}

// TakeTogether consumes the units of all checks if each check admits them, and nothing otherwise.
// It puts the answer of each into out, all in one step. Checks with the same counter must be
// admitted together. Checks under a dry run (see [limit.Rule.DryRun]) never prevent the others. ok
// is false if a counter was dropped; then nothing has happened.
func TakeTogether(list []Asked, checks []limit.Check, now int64, out []limit.Result) (ok bool) {
	// All callers lock in one order, that of the addresses, so there is no deadlock.
	slices.SortStableFunc(list, func(a, b Asked) int {
		return cmp.Compare(uintptr(unsafe.Pointer(a.Counter)), uintptr(unsafe.Pointer(b.Counter)))
	})
	total(list, checks)
	locked, alive, wake := 0, true, (*Link)(nil)
	for ; locked < len(list) && alive; locked++ {
		if a := &list[locked]; !a.again {
			a.Counter.lock(now)
			alive = !a.Counter.dead
		}
	}
	if alive {
		// Addresses are for locks alone: which decision comes first must not depend on them.
		slices.SortFunc(list, func(a, b Asked) int { return cmp.Compare(a.Check, b.Check) })
		wake = decideTogether(list, checks, now, out)
	}
	for i := range list[:locked] {
		if !list[i].again {
			list[i].Counter.unlock()
		}
	}
	if wake != nil {
		wake.signal()
	}
	return alive
}

// total marks the checks that share a counter with an earlier one, and sums up the units of each
// counter. The units of a dry run are added only for dry runs.
func total(list []Asked, checks []limit.Check) {
	for i := range list {
		a := &list[i]
		dry := checks[a.Check].Rule.IsDryRun()
		a.again = i > 0 && list[i-1].Counter == a.Counter
		for _, b := range list {
			if q := &checks[b.Check]; b.Counter == a.Counter && (dry || !q.Rule.IsDryRun()) {
				a.total = min(a.total+min(cmp.Or(q.N, 1), algorithm.MaxUnits), algorithm.MaxUnits)
			}
		}
	}
}

// decideTogether is TakeTogether with all counters locked. It returns the link whose reconciler
// must be woken, nil if there is none. Most checks are admitted, so the rest of the answer is
// computed once, after the units were counted.
func decideTogether(list []Asked, checks []limit.Check, now int64, out []limit.Result) (wake *Link) {
	all := true
	for i := range list {
		a := &list[i]
		rule := checks[a.Check].Rule
		at := a.Counter.enterLocked(now, rule)
		res := &out[a.Check]
		if a.Counter.judgeLocked(at, a.total) {
			*res = limit.Result{Allowed: true, Source: a.Counter.sourceLocked()}
			continue
		}
		*res = decision.Judged(rule, a.Counter.answerLocked(at, a.total, false))
		all = all && res.Allowed
	}
	for i := range list {
		a := &list[i]
		q, res := &checks[a.Check], &out[a.Check]
		if at := a.Counter.enterLocked(now, q.Rule); all && !res.WouldRefuse {
			a.Counter.bookLocked(at, cmp.Or(q.N, 1))
			src := res.Source
			*res = a.Counter.describeLocked(at, cmp.Or(q.N, 1), true)
			res.Source = src
		} else if res.Allowed && !res.WouldRefuse {
			*res = a.Counter.answerLocked(at, a.total, true)
		}
		if a.Counter.link() != nil && a.Counter.noteLocked() {
			wake = a.Counter.link()
		}
	}
	return wake
}

// bookLocked counts n units, whether they fit or not.
func (c *Counter) bookLocked(now, n int64) {
	if n == 0 {
		return
	}
	w := modeMultiplier(c.mode())
	c.state().Book(c.rule(), now, n, c.rule().Multiplied(n, w), w)
	c.indebtLocked(n)
}
