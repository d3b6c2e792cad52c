package arith

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func quota(t testing.TB, u Unit, name string, first int) *Rule {
	r := Quota("q", 10, &Calendar{Unit: u, Zone: zone(t, name), First: first})
	return &r
}

// What a period is, in dates that anyone can look up.
//
// Fault 105: clocks that are set, leap years, months of all lengths.
func TestCalendarDates(t *testing.T) {
	for _, c := range []struct {
		unit             Unit
		zone             string
		first            int
		at, begins, ends string
	}{
		{Day, "UTC", 1, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z"},
		{Day, "UTC", 1, "1969-12-31T23:59:59Z", "1969-12-31T00:00:00Z", "1970-01-01T00:00:00Z"},
		// Summer time begins and ends: 23 and 25 hours.
		{Day, "Europe/Berlin", 1, "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{Day, "Europe/Berlin", 1, "2026-10-25T22:59:59Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{Day, "Australia/Lord_Howe", 1, "2026-04-05T00:00:00Z", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z"},
		// Clocks skip midnight, or show it twice, or the hour before it.
		{Day, "Africa/Cairo", 1, "2024-04-26T00:00:00Z", "2024-04-25T22:00:00Z", "2024-04-26T21:00:00Z"},
		{Day, "America/Sao_Paulo", 1, "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		{Day, "America/Sao_Paulo", 1, "2018-02-17T12:00:00Z", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z"},
		{Day, "America/Havana", 1, "2026-11-01T12:00:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		// Samoa had no 30th of December.
		{Day, "Pacific/Apia", 1, "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{Day, "Pacific/Apia", 1, "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		// Weeks.
		{Week, "UTC", 1, "2026-11-29T23:59:59Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"},
		{Week, "UTC", 1, "2026-11-23T00:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"},
		{Week, "UTC", 7, "2026-11-28T23:59:59Z", "2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z"},
		{Week, "America/New_York", 7, "2026-11-01T12:00:00Z", "2026-11-01T04:00:00Z", "2026-11-08T05:00:00Z"},
		// Months.
		{Month, "UTC", 1, "2026-02-28T23:59:59Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"},
		{Month, "UTC", 1, "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		{Month, "Asia/Tokyo", 1, "2026-12-31T15:00:00Z", "2026-12-31T15:00:00Z", "2027-01-31T15:00:00Z"},
		{Month, "UTC", 15, "2026-01-14T23:59:59Z", "2025-12-15T00:00:00Z", "2026-01-15T00:00:00Z"},
		{Month, "UTC", 31, "2026-02-27T23:59:59Z", "2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z"},
		{Month, "UTC", 31, "2026-02-28T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"},
		{Month, "UTC", 31, "2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z", "2028-03-31T00:00:00Z"},
		{Month, "UTC", 30, "2026-04-29T23:59:59Z", "2026-03-30T00:00:00Z", "2026-04-30T00:00:00Z"},
	} {
		r := quota(t, c.unit, c.zone, c.first)
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		id := r.Index(at.UnixNano())
		is := func(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339) }
		if from, to := is(r.Ends(id-1)), is(r.Ends(id)); from != c.begins || to != c.ends {
			t.Errorf("%v %s %d at %s: %s to %s, want %s to %s", c.unit, c.zone, c.first, c.at, from, to, c.begins, c.ends)
		}
	}
}

// Periods follow each other without a gap, have the numbers that neighbours expect, and are those of what
// clocks in the zone show. With a cache or without, in whatever order they are asked for.
//
// Fault 105: clocks that are set, in 70 years of twelve zones.
func TestCalendarHasNoGaps(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, name := range []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "America/St_Johns", "Pacific/Apia", "Pacific/Kwajalein",
		"Asia/Beirut", "Africa/Casablanca", "Asia/Kathmandu", "Antarctica/Troll", "America/Havana", "Pacific/Kiritimati"} {
		for unit := Day; unit <= Month; unit++ {
			most := map[Unit]int{Day: 1, Week: 7, Month: 31}[unit]
			r := quota(t, unit, name, 1+rng.IntN(most))
			last := r.Index(0)
			const step = 55 * 3600
			for at := int64(0); at < 70*365*secondsOfDay; at += step {
				ns := at*1e9 + rng.Int64N(step*1e9)
				id := r.Index(ns)
				fresh := Quota("q", 10, &Calendar{Unit: unit, Zone: r.Calendar.Zone, First: r.Calendar.First})
				if rng.IntN(8) == 0 && (fresh.Index(ns) != id || fresh.Ends(id) != r.Ends(id) || r.Ends(id-5) != r.Calendar.begins(id-4) || r.Ends(id+2) != r.Calendar.begins(id+3)) {
					t.Fatalf("%s: the answer depends on what was asked before", name)
				}
				if id < last || id > last+6 || ns >= r.Ends(id) || ns < r.Ends(id-1) || r.Begins(id) > r.Ends(id-1) {
					t.Fatalf("%s, unit %d from %d: %d after %d at %v", name, unit, r.Calendar.First, id, last, time.Unix(0, ns))
				}
				if shown := r.Calendar.about(ns); shown != id && name != "America/St_Johns" && name != "Antarctica/Troll" {
					t.Fatalf("%s: period %d at %v, clocks show %d", name, id, time.Unix(0, ns).In(r.Calendar.Zone), shown)
				}
				last = id
			}
		}
	}
}

// Fault 105: times that no calendar has.
func TestCalendarSaturates(t *testing.T) {
	for unit := Day; unit <= Month; unit++ {
		r := quota(t, unit, "Europe/Berlin", 1)
		for _, at := range []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, math.MaxInt64 - 1, math.MaxInt64} {
			id := r.Index(at)
			if end := r.Ends(id); at >= end && end != math.MaxInt64 {
				t.Errorf("unit %d: %d ends at %d, before %d", unit, id, end, at)
			}
		}
		for _, id := range []int64{math.MinInt64 / 4, math.MaxInt64 / 4} {
			if end := r.Ends(id); end != saturated(id) {
				t.Errorf("unit %d: %d ends at %d", unit, id, end)
			}
		}
	}
}

// Calendars count alike if their periods are the same, and every process gives them the same width.
func TestCalendarsDiffer(t *testing.T) {
	a := quota(t, Month, "Europe/Berlin", 1)
	for name, c := range map[string]struct {
		r    *Rule
		same bool
	}{
		"equal": {quota(t, Month, "Europe/Berlin", 1), true}, "first": {quota(t, Month, "Europe/Berlin", 2), false},
		"zone": {quota(t, Month, "Europe/Paris", 1), false}, "unit": {quota(t, Week, "Europe/Berlin", 1), false},
	} {
		if a.SameShape(c.r) != c.same || (a.Width == c.r.Width) != c.same || (a.ShapeHash() == c.r.ShapeHash()) != c.same {
			t.Errorf("%s: same shape %v, widths %v and %v", name, a.SameShape(c.r), a.Width, c.r.Width)
		}
	}
	if w := window(10, 31*24*time.Hour, 1); a.SameShape(w) || w.SameShape(a) {
		t.Error("a calendar has the shape of a window")
	}
}
