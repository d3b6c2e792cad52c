package rules

import (
	"cmp"
	"math"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The algorithms by the words of a file. A leaky bucket and a token bucket are the same,
// seen from two sides, and so is the GCRA.
var algorithms = map[string]arith.Algorithm{
	"token-bucket":   arith.TokenBucket,
	"leaky-bucket":   arith.TokenBucket,
	"gcra":           arith.TokenBucket,
	"sliding-window": arith.SlidingWindow,
	"fixed-window":   arith.FixedWindow,
	"calendar":       arith.CalendarQuota,
	"sliding-log":    arith.SlidingLog,
}

var algorithmNames = []string{"token-bucket", "leaky-bucket", "gcra", "sliding-window", "fixed-window", "calendar", "sliding-log"}

// Fields of a rule. A plan or an override may change the numbers, not the algorithm: a
// counter belongs to a name and an algorithm.
var (
	numberFields = []string{"limit", "per", "burst", "buckets", "zone", "first_day", "limits", "exact", "dry_run", "unlimited", "blocked"}
	ruleFields   = append(append([]string{"algorithm"}, numberFields...), "keys")
	// A rule with limits has none of these.
	singleFields = []string{"algorithm", "limit", "per", "burst", "buckets", "zone", "first_day"}
)

// numbers is what a file says of a rule. It is comparable: equal numbers under one name are
// one rule.
type numbers struct {
	algorithm          arith.Algorithm
	limit              int64
	per                time.Duration
	burst              int64 // of a bucket; 0: as many as the limit
	buckets            int   // of a sliding window; 0: the default
	calendar           calendar
	limits             string // instead of all above, see limit.Parse; "": none
	exact, dry         bool
	unlimited, blocked bool
}

// shaped is the part of the numbers in which rules of one name must not differ if they are
// used side by side, see package limit.
type shaped struct {
	limit    int64
	per      time.Duration
	buckets  int
	calendar calendar
}

func (s numbers) shape() shaped {
	if s.limits != "" {
		if r, err := limit.Parse("limits", s.limits); err == nil && r.Parts() == nil {
			return shaped{limit: arith.Of(r).Units, per: r.Period(), buckets: arith.Of(r).Buckets}
		}
		return shaped{} // the names of the parts say how they count
	}
	sh := shaped{per: s.per, buckets: s.buckets, calendar: s.calendar}
	if s.algorithm == arith.TokenBucket {
		sh.limit = s.limit // the rate
	}
	if s.algorithm == arith.SlidingWindow && s.buckets == 0 {
		sh.buckets = arith.DefaultBuckets
	}
	if s.algorithm == arith.CalendarQuota {
		sh.calendar.first, sh.calendar.zone = max(s.calendar.first, 1), cmp.Or(s.calendar.zone, "UTC")
	}
	return sh
}

// numbers reads the fields of n over what is there already: those of the rule, for a plan
// or an override. unlimited and blocked are not taken over by what says a limit of its own.
func (d decoder) numbers(n *node, path string, over numbers) (s numbers, ok bool) {
	s, ok = over, true
	if n.get("limit") != nil || n.get("limits") != nil { // who says a limit means one
		s.unlimited, s.blocked = false, false
	}
	note := func(fine bool) { ok = ok && fine }
	for _, f := range n.fields {
		at, fine := join(path, f.name), true
		switch f.name {
		case "limit":
			s.limit, fine = d.integer(f.value, at, 0, arith.MaxUnits)
		case "per":
			if s.algorithm == arith.CalendarQuota || s.algorithm == 0 && calendarUnits[f.value.text] != 0 {
				s.calendar.unit, fine = d.unit(f.value, at)
			} else {
				s.per, fine = d.duration(f.value, at, time.Nanosecond, arith.MaxWindow)
			}
		case "zone":
			s.calendar.zone, fine = d.zone(f.value, at)
		case "first_day":
			s.calendar.first, fine = d.integer(f.value, at, 1, 31)
		case "burst":
			s.burst, fine = d.integer(f.value, at, 1, arith.MaxUnits)
		case "buckets":
			var v int64
			v, fine = d.integer(f.value, at, 1, math.MaxInt16)
			s.buckets = int(v)
		case "limits":
			s.limits, fine = d.limits(f.value, at)
		case "exact":
			s.exact, fine = d.boolean(f.value, at)
		case "dry_run":
			s.dry, fine = d.boolean(f.value, at)
		case "unlimited":
			s.unlimited, fine = d.boolean(f.value, at)
			if n.get("blocked") == nil && s.unlimited {
				s.blocked = false
			}
		case "blocked":
			s.blocked, fine = d.boolean(f.value, at)
			if n.get("unlimited") == nil && s.blocked {
				s.unlimited = false
			}
			if n.get("dry_run") == nil && s.blocked { // that of the rule is a trial of its limit
				s.dry = false
			}
		}
		note(fine)
	}
	if ok && s.unlimited && s.blocked {
		d.add(n.place, path, "cannot be unlimited and blocked at once")
		ok = false
	}
	if v := n.get("limit"); ok && v != nil && s.limit == 0 && s.algorithm == arith.TokenBucket {
		d.add(v.place, join(path, "limit"), "a bucket needs a rate above 0; to refuse everything write blocked: true")
		ok = false
	}
	ok = ok && d.firstDay(n, path, s.calendar)
	return s, d.suits(n, path, s.algorithm) && d.limitsAlone(n, path, over) && ok
}

// limits reads several limits in one line.
func (d decoder) limits(n *node, path string) (text string, ok bool) {
	if text, ok = d.text(n, path); !ok {
		return "", false
	}
	if _, err := limit.Parse("limits", text); err != nil {
		d.add(n.place, path, "%s", strings.ReplaceAll(plain(err), `rule "limits": `, ""))
		return "", false
	}
	return text, true
}

// limitsAlone checks that limits are not mixed with the fields of a single limit, neither in n nor in
// the rule that n changes.
func (d decoder) limitsAlone(n *node, path string, over numbers) bool {
	fine := true
	for _, name := range singleFields {
		switch v := n.get(name); {
		case v == nil:
		case n.get("limits") != nil:
			d.add(v.place, join(path, name), "must not be given beside limits, which says all of it")
			fine = false
		case over.limits != "":
			d.add(v.place, join(path, name), "the rule has limits: write limits here as well")
			fine = false
		}
	}
	if v := n.get("limits"); v != nil && over.limits == "" && (over.per != 0 || over.calendar.unit != 0) {
		d.add(v.place, join(path, "limits"), "the rule has a limit and a period: write limit and per here as well")
		fine = false
	}
	return fine
}

// suits checks that a rule has no field of another algorithm. An unknown one suits all.
func (d decoder) suits(n *node, path string, alg arith.Algorithm) bool {
	fine := true
	if v := n.get("burst"); v != nil && alg != arith.TokenBucket && alg != 0 {
		d.add(v.place, join(path, "burst"), "is for token-bucket, leaky-bucket and gcra alone: a %v lets its whole limit pass at once", alg)
		fine = false
	}
	if v := n.get("buckets"); v != nil && alg != arith.SlidingWindow && alg != 0 {
		d.add(v.place, join(path, "buckets"), "is for sliding-window alone")
		fine = false
	}
	for _, name := range []string{"zone", "first_day"} {
		if v := n.get(name); v != nil && alg != arith.CalendarQuota && alg != 0 {
			d.add(v.place, join(path, name), "is for calendar alone")
			fine = false
		}
	}
	return fine
}

// rule builds the rule of these numbers. Who is blocked is refused without asking Redis, so a blocked
// rule is not exact.
func (s numbers) rule(name string) (rule *limit.Rule, err error) {
	switch {
	case s.unlimited:
		return limit.Unlimited(), nil
	case s.limits != "" && s.blocked:
		return limit.SlidingWindow(name, 0, time.Minute)
	case s.limits != "":
		rule, err = limit.Parse(name, s.limits)
	default:
		rule, err = s.single(name)
	}
	if err == nil && s.exact && !s.blocked {
		rule = rule.Exact()
	}
	if err == nil && s.dry {
		rule = rule.DryRun()
	}
	return rule, err
}

// single builds the rule of one limit.
func (s numbers) single(name string) (*limit.Rule, error) {
	most := s.limit
	if s.blocked {
		most = 0
	}
	switch s.algorithm {
	case arith.TokenBucket:
		burst := s.burst
		if burst == 0 {
			burst = s.limit
		}
		if s.blocked {
			burst = 0
		}
		return limit.TokenBucket(name, s.limit, s.per, burst)
	case arith.SlidingWindow:
		buckets := s.buckets
		if buckets == 0 {
			buckets = arith.DefaultBuckets
		}
		return limit.SlidingWindowBuckets(name, most, s.per, buckets)
	case arith.FixedWindow:
		return limit.FixedWindow(name, most, s.per)
	case arith.CalendarQuota:
		return s.calendar.quota(name, most)
	}
	return limit.SlidingLog(name, most, s.per)
}

// plain returns the text of an error of package limit on one line, without the package's
// name: the place says which rule it is about.
func plain(err error) string {
	text := strings.ReplaceAll(err.Error(), "limit: ", "")
	return strings.ReplaceAll(text, "\n", "; ")
}
