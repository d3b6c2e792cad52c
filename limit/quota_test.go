package limit

import (
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// A quota has the calendar that it was made with, and what makes no calendar is an error that says why.
func TestQuota(t *testing.T) {
	zone := time.FixedZone("here", 3600)
	for _, c := range []struct {
		calendar Calendar
		text     string // of the rule, or of its error
	}{
		{Calendar{Unit: Day}, `calendar "q": 10 per day in UTC`},
		{Calendar{Unit: Week, First: 7, Zone: zone}, `calendar "q": 10 per week from day 7 in here`},
		{Calendar{Unit: Month, First: 31}, `calendar "q": 10 per month from day 31 in UTC`},
		{Calendar{Unit: Month, First: 1, Zone: time.UTC}, `calendar "q": 10 per month in UTC`},
		{Calendar{}, `unit unit(0): must be day, week or month`},
		{Calendar{Unit: Month + 1}, `unit unit(4): must be day, week or month`},
		{Calendar{Unit: Day, First: 2}, `first day 2: must be 1 to 1`},
		{Calendar{Unit: Week, First: 8}, `first day 8: must be 1 to 7`},
		{Calendar{Unit: Month, First: 32}, `first day 32: must be 1 to 31`},
		{Calendar{Unit: Month, First: -1}, `first day -1`},
		{Calendar{Unit: Month, Zone: time.FixedZone("", 3600)}, `zone "": must have a name`},
		{Calendar{Unit: Month, Zone: time.FixedZone("localtime", 3600)}, `zone "localtime": must be the same in every process`},
		{Calendar{Unit: Month, Zone: time.FixedZone("right/Europe/Berlin", 3600)}, `counts leap seconds`},
		{Calendar{Unit: Month, Zone: time.FixedZone("far", 24*3600+1)}, `must differ from UTC by a day at most`},
		{Calendar{Unit: Month, Zone: time.FixedZone("far", -24*3600-1)}, `must differ from UTC by a day at most`},
	} {
		r, err := Quota("q", 10, c.calendar)
		if err != nil {
			if r != nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%+v: %v", c.calendar, err)
			}
			continue
		}
		want := c.calendar
		want.First = max(want.First, 1)
		if want.Zone == nil {
			want.Zone = time.UTC
		}
		if r.String() != c.text || calendarOf(r) != want || arith.Of(r).Algorithm != arith.CalendarQuota || arith.Of(r).Buckets != 1 || r.Period() < 24*time.Hour {
			t.Errorf("%v: %+v, %v", r, calendarOf(r), r.Period())
		}
		if d := r.DryRun().Exact(); calendarOf(d) != want || d.String() != c.text+" (exact) (dry run)" {
			t.Errorf("%v", d)
		}
	}
	if r, err := Quota("", -1, Calendar{}); r != nil || !strings.Contains(err.Error(), "name") || !strings.Contains(err.Error(), "-1") || !strings.Contains(err.Error(), "unit") {
		t.Errorf("%v, %v", r, err)
	}
}

// Programs may make UTC their local time zone. It is known by its name.
func TestQuotaWhereUTCIsLocal(t *testing.T) {
	before := time.Local
	defer func() { time.Local = before }()
	if r, err := Quota("q", 1, Calendar{Unit: Day, Zone: time.Local}); r != nil || err == nil || !strings.Contains(err.Error(), `zone "Local"`) {
		t.Errorf("%v, %v", r, err)
	}
	time.Local = time.UTC
	for _, zone := range []*time.Location{nil, time.UTC, time.Local} {
		if r, err := Quota("q", 1, Calendar{Unit: Day, Zone: zone}); err != nil || calendarOf(r).Zone != time.UTC {
			t.Errorf("%v, %v", r, err)
		}
	}
}

// calendarOf returns the calendar of a quota.
func calendarOf(r *Rule) Calendar {
	c := arith.Of(r).Calendar
	return Calendar{Unit: Unit(c.Unit), Zone: c.Zone, First: c.First}
}
