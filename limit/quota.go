package limit

import (
	"errors"
	"strconv"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// Unit is the length of the periods of a [Calendar].
type Unit uint8

// The units.
const (
	Day Unit = iota + 1
	Week
	Month
)

// String returns the unit in lower case.
func (u Unit) String() string { return arith.Unit(u).String() }

// Calendar is the periods of a [Quota].
type Calendar struct {
	// Unit is [Day], [Week] or [Month].
	Unit Unit
	// Zone is the time zone in which a period begins at midnight, as of [time.LoadLocation]; nil: UTC. It is known by its name: zones
	// of the same name are taken for the same, and another spelling, such as Etc/UTC, for another zone. A
	// zone that has no name, or one that means another zone on each host, such as Local, is not allowed.
	Zone *time.Location
	// First is the day on which a period begins: of a week 1 (Monday) to 7 (Sunday), of a month 1 to 31.
	// A month that has no such day begins on its last one: from the 31st of January to the 28th of
	// February, and then to the 31st of March. 0: 1.
	First int
}

// Quota describes at most limit units in each period of a calendar: a day, a week or a month. A period
// begins at midnight of its first day, or at the first instant of that day if clocks skip midnight, so it
// is longer or shorter if clocks are set. As with every fixed window, up to twice the limit may
// pass around the moment at which a period begins.
//
// Redis' clock decides in which period a unit counts, if the counter is shared. When a period begins is
// computed by each process, with its time zone data (see [time.LoadLocation]; a program that imports
// time/tzdata has its own). If the data differ, a period begins when it does for the first process that
// reports a unit.
//
// As of every window, units cannot be reserved ahead: Reserve takes those that are admitted now, or none.
func Quota(name string, limit int64, c Calendar) (*Rule, error) {
	r := newRule(name, arith.CalendarQuota)
	errs := []error{r.checkName(), r.checkUnits("limit", limit, 0)}
	most := 1
	switch c.Unit {
	case Day:
	case Week:
		most = 7
	case Month:
		most = 31
	default:
		errs = append(errs, r.bad("unit", c.Unit, "must be day, week or month"))
	}
	if c.First < 0 || c.First > most {
		errs = append(errs, r.bad("first day", c.First, "must be 1 to %d", most))
	}
	if why := arith.BadZone(c.Zone); why != "" {
		errs = append(errs, r.bad("zone", strconv.Quote(c.Zone.String()), "%s", why))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if c.Zone == nil {
		c.Zone = time.UTC
	}
	*arith.Of(r) = arith.Quota(name, limit, &arith.Calendar{Unit: arith.Unit(c.Unit), Zone: c.Zone, First: max(c.First, 1)})
	return r.sealed(), nil
}
