package rules

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// calendar is what a file says of the periods of a rule by the calendar.
type calendar struct {
	unit  limit.Unit
	zone  string // "": UTC
	first int64  // 0: 1
}

var calendarUnits = map[string]limit.Unit{"day": limit.Day, "week": limit.Week, "month": limit.Month}

// unit reads the period of a calendar.
func (d decoder) unit(n *node, path string) (u limit.Unit, ok bool) {
	word, ok := d.text(n, path)
	if u = calendarUnits[word]; ok && u == 0 {
		d.add(n.place, path, "%q is no period of a calendar: day, week or month", clip(word))
	}
	return u, u != 0
}

// firstDay checks that the periods of a calendar have its first day. One that stays from a rule which n
// changes is a fault of the new period.
func (d decoder) firstDay(n *node, path string, c calendar) bool {
	days := map[limit.Unit]int64{limit.Day: 1, limit.Week: 7}[c.unit]
	if days == 0 || c.first <= days {
		return true
	}
	first, per := n.get("first_day"), n.get("per")
	switch {
	case first != nil && days == 1:
		d.add(first.place, join(path, "first_day"), "a day has no first_day")
	case first != nil:
		d.add(first.place, join(path, "first_day"), "must be 1 to %d for a %v", days, c.unit)
	case per != nil && days == 1:
		d.add(per.place, join(path, "per"), "the rule has the first day %d: write first_day: 1 here as well", c.first)
	case per != nil: // else the rule itself has this fault
		d.add(per.place, join(path, "per"), "the rule has the first day %d: write first_day here as well", c.first)
	}
	return false
}

// zone reads the name of a time zone.
func (d decoder) zone(n *node, path string) (name string, ok bool) {
	if name, ok = d.text(n, path); !ok {
		return "", false
	}
	if _, err := zoneOf(name); err != nil {
		d.add(n.place, path, "%v", err)
		return "", false
	}
	return name, true
}

// zones are those that were loaded, by name: each is read from a file. New data take effect when the
// process starts again.
var zones sync.Map

// zoneOf returns a time zone. The system may have none: then a program that imports time/tzdata has them.
func zoneOf(name string) (*time.Location, error) {
	if zone, ok := zones.Load(name); ok {
		return zone.(*time.Location), nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%q is no time zone that is known here, such as Europe/Berlin or UTC", clip(name))
	}
	if why := arith.BadZone(zone); why != "" {
		return nil, errors.New(why)
	}
	zones.Store(name, zone)
	return zone, nil
}

// quota builds the rule.
func (c calendar) quota(name string, most int64) (*limit.Rule, error) {
	zone, err := zoneOf(c.zone)
	if err != nil {
		return nil, err
	}
	return limit.Quota(name, most, limit.Calendar{Unit: c.unit, Zone: zone, First: int(c.first)})
}
