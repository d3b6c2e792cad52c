package algorithm

import (
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

func quota(t testing.TB, unit limit.Unit, zone string, first int) *arith.Rule {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	return arith.Of(limit.Must(limit.Quota("q", 10, limit.Calendar{Unit: unit, Zone: loc, First: first})))
}

// A window counts by the calendar, whatever our clock shows beside Redis', and says when a period ends. The
// model is a map.
//
// Fault 105: periods of all lengths.
func TestWindowOfACalendar(t *testing.T) {
	for _, r := range []*arith.Rule{quota(t, limit.Day, "Europe/Berlin", 1), quota(t, limit.Week, "Pacific/Apia", 3), quota(t, limit.Month, "America/Sao_Paulo", 31)} {
		rng := rand.New(rand.NewPCG(3, uint64(r.Width)))
		server := time.Date(2011, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
		off := rng.Int64N(int64(1000 * time.Hour))
		var w Window
		w.Begin(r, server-off, Clock{Off: off, Sure: true})
		used := map[int64]int64{}
		for range 5000 {
			if rng.IntN(3) == 0 {
				server += rng.Int64N(int64(30 * time.Hour))
			} else if rng.IntN(3) == 0 {
				server = r.Ends(r.Index(server)) + rng.Int64N(3) - 1
			}
			now, id, n := server-off, r.Index(server), rng.Int64N(5)
			w.Roll(r, now, 1)
			fits := used[id]+n <= 10
			if w.Fits(r, now, n) != fits {
				t.Fatalf("at %v: %d more of %d", time.Unix(0, server), n, used[id])
			}
			if !fits && w.FitsAt(r, now, n) != r.Ends(id)-off {
				t.Fatalf("they fit at %d, the period ends at %d", w.FitsAt(r, now, n), r.Ends(id)-off)
			}
			if fits {
				w.Book(r, now, n, n, 1)
				used[id] += n
			}
			res, left := w.Describe(r, now, n, 1, fits), time.Duration(r.Ends(id)-server)
			if res.Remaining != 10-used[id] || used[id] > 0 && res.ResetAfter != left || !fits && res.RetryAfter != left {
				t.Fatalf("at %v: %+v, want %d left and %v", time.Unix(0, server), res, 10-used[id], left)
			}
			if _, until := w.Lease(r, now); until != r.Ends(id)-off {
				t.Fatalf("a lease lasts until %d", until)
			}
		}
	}
}

// Another node, whose time zone data differ, has begun a period: it has begun here as well, it does not end
// again, and it ends when it does here.
//
// Fault 105: time zone data that differ.
func TestPeriodBegunByOthers(t *testing.T) {
	r := quota(t, limit.Day, "Europe/Berlin", 1)
	end := time.Date(2026, 3, 29, 22, 0, 0, 0, time.UTC).UnixNano()
	now := end - int64(time.Hour)
	id := r.Index(now)
	answer := func(at, of, units int64) report.Answer {
		return report.Answer{State: report.State{Buckets: []report.Bucket{{ID: of, Units: units}}}, At: at, Now: at, ServerNow: at, Floor: true}
	}
	begin := func() *Window {
		w := new(Window)
		w.Begin(r, now, Clock{Sure: true})
		w.Book(r, now, 4, 4, 1)
		w.Collect(r)
		return w
	}
	w := begin()
	w.Book(r, now, 2, 2, 1) // not reported: it may have been admitted in the next period, and counts there
	if s := w.Settle(r, answer(now, id+1, 3), 1); s.Lost || s.Expired != 0 || !w.Fits(r, now, 5) || w.Fits(r, now, 6) {
		t.Errorf("%+v: %+v", s, w.list)
	}
	w.Follow(r, now+1, now, 1, Clock{Off: 0, Slack: 1, Sure: true})
	w.Follow(r, now+2, now, 1, Clock{Off: -5, Slack: 1, Sure: true})
	w.Roll(r, now+3, 1)
	w.Collect(r)
	var rep report.Report
	if w.Report(r, now+5, 0, &rep); len(rep.Buckets) != 1 || rep.Buckets[0].ID != id+1 || rep.Buckets[0].Units != 2 {
		t.Errorf("reported: %+v", rep.Buckets)
	}
	if s := w.Settle(r, answer(now+6, id+1, 5), 1); s.Lost || s.OtherClock {
		t.Errorf("%+v", s)
	}
	for _, at := range []int64{now + 7, end - 1, end + 5, end + 6, r.Ends(id+1) + 4} {
		if w.Roll(r, at, 1); !w.Fits(r, at, 5) || w.Fits(r, at, 6) {
			t.Errorf("at %v: %+v", time.Unix(0, at), w.list)
		}
	}
	if w.Roll(r, r.Ends(id+1)+5, 1); !w.Fits(r, r.Ends(id+1)+5, 10) {
		t.Errorf("it does not end: %+v", w.list)
	}

	// Two periods ahead is no other data: that clock was wrong, and its units count now.
	w = begin()
	if w.Settle(r, answer(now, id+2, 9), 1); w.cur != id || w.Fits(r, now, 2) {
		t.Errorf("in %d, want %d: %+v", w.cur, id, w.list)
	}
}

// Our clock jumps over the beginning of a period, and is found out: the present period goes on.
//
// Fault 105: a node's own clock jumps.
func TestPeriodOfAWrongClock(t *testing.T) {
	r := quota(t, limit.Day, "Europe/Berlin", 1)
	end := time.Date(2026, 3, 29, 22, 0, 0, 0, time.UTC).UnixNano()
	now, id := end-int64(time.Minute), r.Index(end)-1
	var w Window
	w.Begin(r, now, Clock{Sure: true})
	w.Settle(r, report.Answer{State: report.State{Buckets: []report.Bucket{{ID: id, Units: 9}}}, At: now, Now: now, ServerNow: now, Floor: true}, 1)
	jump := int64(time.Hour) // our clock, and not Redis'
	w.Roll(r, now+jump, 1)
	w.Book(r, now+jump, 1, 1, 1)
	if w.Follow(r, now+jump+1, now+jump, 1, Clock{Off: -jump, Slack: 1, Sure: true}); w.cur != id {
		t.Errorf("in %d, want %d: %+v", w.cur, id, w.list)
	}
	w.Collect(r)
	w.Settle(r, report.Answer{State: report.State{Buckets: []report.Bucket{{ID: id, Units: 10}}}, At: now + jump + 2, Now: now + jump + 2, ServerNow: now + 2, Floor: true}, 1)
	if w.Roll(r, now+jump+3, 1); w.cur != id || w.Fits(r, now+jump+3, 1) {
		t.Errorf("in %d, want %d: %+v", w.cur, id, w.list)
	}
}

// A period has begun by Redis' clock, which is set back then. It goes on, until Redis has lost what was
// counted in it.
//
// Fault 105: Redis' clock is set back, and its data are lost.
func TestPeriodOfAClockSetBack(t *testing.T) {
	r := quota(t, limit.Day, "Europe/Berlin", 1)
	end := time.Date(2026, 3, 29, 22, 0, 0, 0, time.UTC).UnixNano()
	id, back := r.Index(end), int64(time.Minute)
	var w Window
	w.Begin(r, end, Clock{Sure: true})
	told := func(now, of, units int64) {
		t.Helper()
		w.Follow(r, now, now-1, 1, Clock{Off: -back, Slack: 1, Sure: true, WentBack: true, BackTo: now - back})
		w.Settle(r, report.Answer{State: report.State{Buckets: []report.Bucket{{ID: of, Units: units}}}, At: now, Now: now, ServerNow: now - back, Floor: true}, 1)
		if w.cur != of || !w.Fits(r, now, 10-units) || w.Fits(r, now, 11-units) {
			t.Errorf("in %d, want %d with %d units: %+v", w.cur, of, units, w.list)
		}
	}
	w.Settle(r, report.Answer{State: report.State{Buckets: []report.Bucket{{ID: id, Units: 4}}}, At: end, Now: end, ServerNow: end, Floor: true}, 1)
	told(end+1000, id, 5)
	told(end+2000, id, 6)
	told(end+3000, id-1, 7)
}

// Under another calendar everything counts in the present period.
func TestReshapeToACalendar(t *testing.T) {
	day, month := quota(t, limit.Day, "UTC", 1), quota(t, limit.Month, "UTC", 15)
	now := time.Date(2026, 5, 5, 12, 0, 0, 0, time.UTC).UnixNano()
	for _, c := range [][2]*arith.Rule{{day, month}, {month, day}} {
		var w Window
		came := c[0].Ends(c[0].Index(now)-1) + 1 // at the beginning of the period
		w.Begin(c[0], came, Clock{Sure: true})
		w.Book(c[0], came, 7, 7, 1)
		if expired := w.Reshape(c[0], c[1], now+1, 1); expired != 0 || w.cur != c[1].Index(now) || !w.Fits(c[1], now, 3) || w.Fits(c[1], now, 4) {
			t.Errorf("%d expired: %+v", expired, w)
		}
	}
}
