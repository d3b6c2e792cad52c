package arith

import (
	"cmp"
	"fmt"
	"math"
	"sort"
	"strings"
	"sync/atomic"
	"time"
)

// Unit is the length of a calendar's periods.
type Unit uint8

// The units.
const (
	Day Unit = iota + 1
	Week
	Month
)

var unitNames = [...]string{0: "unit(0)", Day: "day", Week: "week", Month: "month"}

// String returns the unit in lower case.
func (u Unit) String() string {
	if int(u) < len(unitNames) {
		return unitNames[u]
	}
	return fmt.Sprintf("unit(%d)", uint8(u))
}

// Calendar divides time into the days, weeks or months of a time zone. Periods are numbered: day 0 is
// the first of January 1970, week 0 has that day, and month 0 begins in that January. All processes agree
// on the numbers, and on when a period begins as far as their time zone data agree.
type Calendar struct {
	Unit Unit
	Zone *time.Location
	// First is the day on which a period begins: 1 (Monday) to 7 of a week, 1 to 31 of a month. A month
	// that is shorter begins on its last day.
	First int

	latest atomic.Pointer[periods] // around the one that was asked for
}

// String describes the calendar for people, for example "month from day 15 in Europe/Berlin".
func (c *Calendar) String() string {
	text := c.Unit.String()
	if c.First > 1 {
		text += fmt.Sprintf(" from day %d", c.First)
	}
	return text + " in " + c.Zone.String()
}

// periods are some that follow each other: a period, three before it, and two after it.
type periods struct {
	id   int64
	ends [6]int64 // of id-3 to id+2, in ns since the epoch
}

// has reports whether the period id has an instant.
func (p *periods) has(ns int64) bool { return p.ends[2] <= ns && ns < p.ends[3] }

// nominal returns how long a period is, the longest one if they differ.
func (u Unit) nominal() time.Duration {
	switch u {
	case Day:
		return 24 * time.Hour
	case Week:
		return 7 * 24 * time.Hour
	}
	return 31 * 24 * time.Hour
}

// Quota returns the rule of a calendar.
//
// Width is longer than two periods, so that there is room for what is left of a period that has begun early,
// see [Rule.Early]. In Redis a time in a period is (id+1)·Width less what is left of the period, so that the
// scripts count a calendar like a fixed window. Calendars that differ have different widths, by which scripts
// recognise what another calendar has counted.
func Quota(name string, limit int64, c *Calendar) Rule {
	const changes = 4 * time.Hour // of clocks
	mark := HashName(c.Zone.String()) ^ uint64(c.First)*0x9e3779b97f4a7c15
	width := 2*c.Unit.nominal() + changes + time.Duration(mark>>32%3_000_000_000)*time.Microsecond
	return Rule{Name: name, Algorithm: CalendarQuota, Buckets: 1, Limit: limit, Period: c.Unit.nominal(), Width: width, Share: limit, Calendar: c}
}

// BadZone says why periods cannot begin in a time zone; empty: they can, as in nil, which is UTC.
func BadZone(zone *time.Location) string {
	name := zone.String()
	_, offset := time.Unix(0, 0).In(cmp.Or(zone, time.UTC)).Zone()
	switch {
	case name == "":
		return "must have a name, by which processes know that theirs are the same"
	case name == "Local" || name == "localtime" || name == "posixrules" || name == "Factory":
		return "must be the same in every process: write its name, such as Europe/Berlin"
	case strings.HasPrefix(name, "right/"):
		return "counts leap seconds, which Redis' clock does not"
	case offset < -secondsOfDay || offset > secondsOfDay:
		return "must differ from UTC by a day at most"
	}
	return ""
}

// same reports whether two calendars have the same periods.
func (c *Calendar) same(o *Calendar) bool {
	return c == o || c != nil && o != nil && c.Unit == o.Unit && c.First == o.First && c.Zone.String() == o.Zone.String()
}

// index returns the period that has an instant.
func (c *Calendar) index(ns int64) int64 {
	if p := c.latest.Load(); p != nil && p.has(ns) {
		return p.id
	}
	id := c.about(ns)
	for ns < c.begins(id) {
		id--
	}
	end := c.begins(id + 1)
	for ns >= end && end < math.MaxInt64 { // a zone may leave a day out
		id++
		end = c.begins(id + 1)
	}
	p := &periods{id: id}
	for i := range p.ends {
		p.ends[i] = c.begins(id + int64(i) - 2)
	}
	c.latest.Store(p)
	return id
}

// ends returns when a period ends, in ns since the epoch.
func (c *Calendar) ends(id int64) int64 {
	if p := c.latest.Load(); p != nil {
		if i := id - p.id + 3; 0 <= i && i < int64(len(p.ends)) {
			return p.ends[i]
		}
	}
	return c.begins(id + 1)
}

// about returns the period of an instant by what clocks in the zone show.
func (c *Calendar) about(ns int64) int64 {
	t := time.Unix(0, ns).In(c.Zone)
	y, m, d := t.Date()
	switch c.Unit {
	case Day:
		return daysUntil(y, m, d)
	case Week:
		return floorDiv(daysUntil(y, m, d)+monday-int64(c.First-1), 7)
	}
	id := int64(y-1970)*12 + int64(m-time.January)
	if d < c.first(y, m) {
		id--
	}
	return id
}

// monday is how many days before 1970, a Thursday, the week began.
const monday = 3

// begins returns when a period begins, in ns since the epoch: at the first instant at which clocks in the
// zone show its first day, or a later one.
func (c *Calendar) begins(id int64) int64 {
	if id > mostDays || id < -mostDays {
		return saturated(id)
	}
	var days int64
	switch c.Unit {
	case Day:
		days = id
	case Week:
		days = id*7 - monday + int64(c.First-1)
	default:
		y, m := 1970+int(floorDiv(id, 12)), time.January+time.Month(id-12*floorDiv(id, 12))
		days = daysUntil(y, m, c.first(y, m))
	}
	if days > mostDays || days < -mostDays {
		return saturated(days)
	}
	// Zones differ from UTC by less than a day.
	earliest := (days - 1) * secondsOfDay
	after := sort.Search(2*secondsOfDay, func(i int) bool {
		y, m, d := time.Unix(earliest+int64(i), 0).In(c.Zone).Date()
		return daysUntil(y, m, d) >= days
	})
	return (earliest + int64(after)) * 1e9
}

const (
	secondsOfDay = 24 * 60 * 60
	// mostDays is how far from the epoch days have a time in ns.
	mostDays = math.MaxInt64/(secondsOfDay*1_000_000_000) - 3
)

// saturated is the earliest or the latest time.
func saturated(id int64) int64 {
	if id < 0 {
		return math.MinInt64
	}
	return math.MaxInt64
}

// first returns the day of a month on which a period begins.
func (c *Calendar) first(y int, m time.Month) int {
	last := time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day()
	return min(c.First, last)
}

// daysUntil returns how many days after the first of January 1970 a day is.
func daysUntil(y int, m time.Month, d int) int64 {
	return floorDiv(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix(), secondsOfDay)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// Index returns the ID of the bucket that has an instant, in ns since the epoch: of a window its number
// since the epoch, of a calendar that of the period.
func (r *Rule) Index(at int64) int64 {
	if r.Calendar != nil {
		return r.Calendar.index(at)
	}
	return floorDiv(at, int64(r.Width))
}

// Ends returns when a bucket ends, in ns since the epoch.
func (r *Rule) Ends(id int64) int64 {
	if r.Calendar != nil {
		return r.Calendar.ends(id)
	}
	return (id + 1) * int64(r.Width)
}

// Begins returns when a bucket begins that is Width long, in ns since the epoch. The period of a calendar
// is shorter, and begins later.
func (r *Rule) Begins(id int64) int64 { return r.Ends(id) - int64(r.Width) }

// Early returns by how many buckets Redis may be ahead of its clock. A period of a calendar may have begun
// for another process, whose time zone data differ. It does not end again, else what is counted in it
// would be forgotten with each report of a process for which it has not begun.
func (r *Rule) Early() int64 {
	if r.Calendar != nil {
		return 1
	}
	return 0
}
