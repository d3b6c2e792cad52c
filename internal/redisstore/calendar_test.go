package redisstore

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

func berlin(t testing.TB) *time.Location {
	t.Helper()
	return limit.Must(time.LoadLocation("Europe/Berlin"))
}

func calendars(t testing.TB) []*limit.Rule {
	zone := berlin(t)
	return []*limit.Rule{
		limit.Must(limit.Quota("day", 10, limit.Calendar{Unit: limit.Day, Zone: zone})),
		limit.Must(limit.Quota("week", 10, limit.Calendar{Unit: limit.Week, Zone: zone, First: 7})),
		limit.Must(limit.Quota("month", 10, limit.Calendar{Unit: limit.Month, Zone: zone, First: 31})),
	}
}

// setTime sets the clock of miniredis.
func (b *backend) setTime(at time.Time) {
	b.at = at
	b.mini.SetTime(at)
}

// ends returns when the period that has an instant ends.
func ends(r *limit.Rule, at time.Time) time.Time {
	is := arith.Of(r)
	return time.Unix(0, is.Ends(is.Index(at.UnixNano())))
}

// Each call counts in the period that Redis' clock is in, whatever that of the caller shows, and says when
// that period really ends. The model is a map.
//
// Fault 105: Redis' clock decides, also when it is years from the caller's.
func TestCalendarTake(t *testing.T) {
	for _, r := range calendars(t) {
		t.Run(r.Name(), func(t *testing.T) {
			b := onMini(t)
			l, rng := b.limiter(), rand.New(rand.NewPCG(1, 2))
			at, used := time.Date(2027, 9, 1, 0, 0, 0, 0, time.UTC), map[time.Time]int64{}
			for range 1500 {
				if rng.IntN(3) == 0 {
					at = at.Add(time.Duration(rng.Int64N(int64(30 * time.Hour)))).Truncate(time.Microsecond)
				} else if end := ends(r, at); rng.IntN(3) == 0 {
					at = end.Add(time.Duration(rng.IntN(3)-1) * time.Microsecond)
				}
				b.setTime(at)
				end, n := ends(r, at), 1+rng.Int64N(4)
				res, err := l.Take(ctx, "k", r, n)
				if err != nil {
					t.Fatal(err)
				}
				fits := used[end]+n <= 10
				if fits {
					used[end] += n
				}
				want := limit.Result{Allowed: fits, Limit: 10, Remaining: 10 - used[end], Source: limit.SourceRemote}
				left := end.Sub(at)
				if used[end] > 0 {
					want.ResetAfter = left
				}
				if !fits {
					want.RetryAfter = left
				}
				if res != want {
					t.Fatalf("at %v: %+v, want %+v", at, res, want)
				}
			}
			b.everyKeyExpires()
			if ttl := b.mini.TTL(b.keys()[0]); ttl > ends(r, at).Sub(at)+2*time.Second {
				t.Errorf("the key is kept for %v, the period ends in %v", ttl, ends(r, at).Sub(at))
			}
		})
	}
}

// Several calls of a pipeline are told what Redis' clock shows, and each has its answer.
func TestCalendarTakeEach(t *testing.T) {
	b := onMini(t)
	rules := calendars(t)
	for range 2 {
		s := b.store() // which knows nothing of that clock
		list := make([]Ask, len(rules))
		for i, r := range rules {
			list[i] = Ask{Counter: s.keys.CounterKey(r, "k"), Rule: r, Units: 1}
		}
		for i, is := range s.LookAt(ctx, list) {
			if is.Err != nil || !is.Result.Allowed {
				t.Errorf("%v: %+v", rules[i], is)
			}
		}
		b.advance(-1000 * time.Hour)
	}
}

// Reports count in the periods in which their units were admitted, as long as these last. Resets, refunds
// and restored states are by the calendar, too.
//
// Fault 105: a period ends between an admission and its report.
func TestCalendarBatch(t *testing.T) {
	for _, r := range calendars(t) {
		t.Run(r.Name(), func(t *testing.T) {
			b := onMini(t)
			s, seq := b.store(), int64(0)
			key := s.keys.CounterKey(r, "k")
			at := time.Date(2026, 3, 28, 23, 30, 0, 0, time.UTC) // the day on which clocks are set
			b.setTime(at)
			send := func(op report.Report) report.State {
				t.Helper()
				seq++
				op.Key, op.Rule = key, r
				out, _ := s.Exec(ctx, []*Batch{{Node: "n", Shard: 0, Seq: seq, Prev: seq - 1, Accept: true, Nonce: uint64(seq), Ops: []report.Report{op}}}, nil)
				if out[0].Err != nil || len(out[0].Reply.States) != 1 {
					t.Fatalf("%+v", out[0])
				}
				return out[0].Reply.States[0]
			}
			id := arith.Of(r).Index(at.UnixNano())
			if st := send(report.Report{Units: 3, Buckets: []report.Bucket{{ID: id, Units: 3}}}); st.Err == nil {
				t.Fatalf("the clocks are years apart, and nobody knows yet: %+v", st)
			}
			want := func(st report.State, id, units int64) {
				t.Helper()
				if st.Err != nil || units == 0 && len(st.Buckets) > 0 || units > 0 && (len(st.Buckets) != 1 || st.Buckets[0].ID != id || st.Buckets[0].Units != units) {
					t.Errorf("%+v, want %d units in %d", st, units, id)
				}
			}
			want(send(report.Report{Units: 3, Buckets: []report.Bucket{{ID: id, Units: 3}}}), id, 3)
			want(send(report.Report{Units: 2, Buckets: []report.Bucket{{ID: id, Units: 2}}}), id, 5)
			want(send(report.Report{BackBuckets: []report.Bucket{{ID: id, Units: 1}}, BackGen: 1 << 50}), id, 4)
			b.rdb.FlushAll(ctx)
			seq = 0
			known := report.State{Gen: 7, Born: b.now(), Buckets: []report.Bucket{{ID: id, Units: 4}}}
			want(send(report.Report{Units: 1, Buckets: []report.Bucket{{ID: id, Units: 1}}, Restore: true, Known: known}), id, 5)
			back, _, err := s.Refund(ctx, "k", r, 2, nil)
			if err != nil || back != 2 {
				t.Errorf("%d refunded, %v", back, err)
			}
			of := Booking{At: time.Duration(at.UnixNano())}
			if back, _, err = s.Refund(ctx, "k", r, 1, &of); err != nil || back != 1 {
				t.Errorf("%d of a booking refunded, %v", back, err)
			}
			want(send(report.Report{}), id, 2)
			done, err := s.Renew(ctx, "k", r, 9)
			if err != nil {
				t.Error(err)
			}
			want(done.State, id, 9)

			b.setTime(ends(r, at))
			want(send(report.Report{Units: 3, Buckets: []report.Bucket{{ID: id, Units: 3}}}), id, 0) // of the period that is over
			want(send(report.Report{Units: 3, Buckets: []report.Bucket{{ID: id + 1, Units: 3}}}), id+1, 3)
			for range 5 { // a booking of long ago
				b.setTime(ends(r, b.at))
			}
			if _, err := (&Limiter{s}).Take(ctx, "k", r, 4); err != nil {
				t.Fatal(err)
			}
			if back, _, err = s.Refund(ctx, "k", r, 1, &of); err != nil || back != 0 {
				t.Errorf("%d of a booking of long ago refunded, %v", back, err)
			}
		})
	}
}

// Two senders have different time zone data: for one a period begins an hour earlier. It begins when it
// does for the first of them that books, once, and nothing of it is forgotten.
//
// Fault 105: time zone data that differ.
func TestCalendarsOfDifferentData(t *testing.T) {
	early := limit.Must(limit.Quota("q", 10, limit.Calendar{Unit: limit.Day, Zone: time.FixedZone("X", 7200)}))
	late := limit.Must(limit.Quota("q", 10, limit.Calendar{Unit: limit.Day, Zone: time.FixedZone("X", 3600)}))
	b := onMini(t)
	l := b.limiter()
	begun := int64(0) // the period that has begun for those who have taken units
	take := func(at time.Time, r *limit.Rule, n int64, want bool, left int64) {
		t.Helper()
		b.setTime(at)
		res, err := l.Take(ctx, "k", r, n)
		if err != nil || res.Allowed != want || res.Remaining != left {
			t.Errorf("at %v: %+v, %v; want %v, %d", at, res, err, want, left)
		}
		is := arith.Of(r)
		begun = max(begun, is.Index(at.UnixNano()))
		end := time.Unix(0, is.Ends(begun)).Sub(at)
		if res.ResetAfter != end || !want && res.RetryAfter != end {
			t.Errorf("at %v: %+v, it ends in %v", at, res, end)
		}
		if ttl := b.mini.TTL(b.keys()[0]); want && ttl < end {
			t.Errorf("at %v: the key is kept for %v, the period ends in %v", at, ttl, end)
		}
	}
	day := time.Date(2026, 5, 5, 21, 0, 0, 0, time.UTC)
	take(day, late, 8, true, 2)
	take(day, early, 2, true, 0)
	day = day.Add(time.Hour) // it begins for the early one
	take(day, late, 1, false, 0)
	take(day, early, 6, true, 4)
	for range 3 {
		take(day, late, 1, true, 3)
		take(day, early, 1, true, 2)
		take(day, late, 3, false, 2)
		day = day.Add(10 * time.Minute)
		b.setTime(day)
		if back, _, err := l.Refund(ctx, "k", late, 2, nil); err != nil || back != 2 {
			t.Errorf("%d refunded, %v", back, err)
		}
	}
	// What the late one reports counts in the period that has begun.
	key, id := l.keys.CounterKey(late, "k"), arith.Of(late).Index(day.UnixNano())
	reply := exec(t, l.Store, &Batch{Node: "n", Seq: 1, Accept: true, Nonce: 1, Ops: []report.Report{{Key: key, Rule: late, Units: 1, Buckets: []report.Bucket{{ID: id, Units: 1}}}}})
	if st := reply.States[0]; len(st.Buckets) != 1 || st.Buckets[0].ID != id+1 || st.Buckets[0].Units != 7 {
		t.Errorf("%+v", st)
	}
	if _, _, err := l.Refund(ctx, "k", late, 1, nil); err != nil {
		t.Error(err)
	}
	day = day.Add(time.Hour) // it has begun for both
	take(day, late, 1, true, 3)
	take(day, early, 4, false, 3)
	take(day, early, 3, true, 0)
}

// A period that has begun does not end when the clock is set back a little, and a rule with another
// calendar goes on with what was counted.
//
// Fault 105: Redis' clock is set back over a boundary; a rule gets another calendar.
func TestCalendarChanges(t *testing.T) {
	b := onMini(t)
	l := b.limiter()
	rules := calendars(t)
	day := time.Date(2026, 5, 5, 22, 0, 0, 0, time.UTC) // midnight in Berlin
	used := func(at time.Time, key string, r *limit.Rule, want int64) {
		t.Helper()
		b.setTime(at)
		res, err := l.Peek(ctx, key, r)
		if err != nil || res.Remaining != r.Limit()-want {
			t.Errorf("at %v: %+v, %v; want %d used", at, res, err, want)
		}
	}
	b.setTime(day)
	if _, err := l.Take(ctx, "k", rules[0], 7); err != nil {
		t.Fatal(err)
	}
	used(day.Add(-time.Second), "k", rules[0], 7)
	used(day.Add(-26*time.Hour), "k", rules[0], 7)
	used(day.Add(24*time.Hour), "k", rules[0], 0)

	// Set back by most of a day: the period goes on until it ends, and nothing of it is forgotten.
	back := day.Add(-20 * time.Hour)
	b.setTime(day)
	if _, err := l.Take(ctx, "back", rules[0], 7); err != nil {
		t.Fatal(err)
	}
	b.setTime(back)
	if res, err := l.Take(ctx, "back", rules[0], 2); err != nil || !res.Allowed || res.Remaining != 1 || res.ResetAfter != 44*time.Hour {
		t.Errorf("set back: %+v, %v", res, err)
	}
	for at := range 44 {
		used(back.Add(time.Duration(at)*time.Hour), "back", rules[0], 9)
	}
	used(back.Add(44*time.Hour), "back", rules[0], 0)
	for i, c := range []limit.Calendar{{Unit: limit.Month}, {Unit: limit.Month, First: 9}, {Unit: limit.Day}, {Unit: limit.Week}} {
		key := fmt.Sprint("changed ", i)
		b.setTime(day)
		if _, err := l.Take(ctx, key, rules[0], 7); err != nil {
			t.Fatal(err)
		}
		other := limit.Must(limit.Quota("day", 20, c))
		used(day, key, other, 7)
		if res, err := l.Take(ctx, key, other, 5); err != nil || res.Remaining != 8 {
			t.Errorf("%v: %+v, %v", other, res, err)
		}
		used(day, key, rules[0], 10) // and back
	}

	// After a refund a counter is stored for longer than its period. What has ended stays ended.
	month := limit.Must(limit.Quota("day", 10, limit.Calendar{Unit: limit.Month}))
	b.setTime(day.Add(20 * time.Hour))
	if _, err := l.Take(ctx, "ended", rules[0], 9); err != nil {
		t.Fatal(err)
	}
	if back, _, err := l.Refund(ctx, "ended", rules[0], 1, nil); err != nil || back != 1 {
		t.Errorf("%d refunded, %v", back, err)
	}
	used(day.Add(24*time.Hour), "ended", month, 8)
	used(day.Add(24*time.Hour+time.Second), "ended", month, 0)
	used(day.Add(36*time.Hour), "ended", rules[0], 0)
}
