package redisstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// States that are merged into a counter count if they are of the latest generation
// of all, or were born since it began; in any order, each once or twice.
func TestMergeAcrossGenerations(t *testing.T) {
	type version struct{ gen, born, units int64 }
	onBoth(t, func(t *testing.T, b *backend) {
		x, next := newBookings(t, b), numbers()
		for name, c := range map[string]struct {
			versions []version
			want     version
		}{
			"of before a reset":                  {[]version{{0, 5, 9}, {10, 10, 0}}, version{10, 10, 0}},
			"of the very time of it":             {[]version{{0, 10, 9}, {10, 9, 0}}, version{10, 10, 9}},
			"since a reset that was forgotten":   {[]version{{0, 15, 9}, {10, 12, 3}}, version{10, 15, 9}},
			"since it, but fewer":                {[]version{{0, 15, 2}, {10, 12, 3}}, version{10, 15, 3}},
			"of one generation":                  {[]version{{10, 11, 4}, {10, 12, 3}}, version{10, 12, 4}},
			"before and since":                   {[]version{{0, 5, 9}, {0, 15, 2}, {10, 12, 1}}, version{10, 15, 9}}, // mixed by whom the reset was not known to
			"before, with nothing in between":    {[]version{{0, 5, 9}, {10, 12, 1}, {20, 20, 0}}, version{20, 20, 0}},
			"of a generation between":            {[]version{{10, 12, 9}, {20, 13, 2}, {15, 25, 4}}, version{20, 25, 4}},
			"nothing known of it but that it is": {[]version{{10, 0, 0}, {0, 9, 5}}, version{10, 0, 0}},
		} {
			permute(len(c.versions), func(order []int) {
				if name == "before and since" && order[2] != 2 {
					return // here what is mixed depends on who comes first
				}
				key := fmt.Sprint(name, order)
				fk, wk := x.s.Keyspace().CounterKey(x.funnel, key), x.s.Keyspace().CounterKey(x.window, key)
				var r booked
				for _, k := range append(order, order...) {
					v := c.versions[k]
					known := report.State{Gen: v.gen, Born: v.born}
					f, w := known, known
					if f.Level = arith.Of(x.funnel).Cost(v.units); v.units > 0 {
						w.Buckets = []report.Bucket{{ID: x.bucket(), Units: v.units}}
					}
					r = exec(t, x.s, &Batch{Node: "m", Seq: next(), Nonce: rand.Uint64(), Accept: true, Ops: []report.Report{
						{Key: fk, Rule: x.funnel, Restore: true, Known: f}, {Key: wk, Rule: x.window, Restore: true, Known: w},
					}})
				}
				var got [2]version
				for i, st := range r.States {
					got[i] = version{gen: st.Gen, born: st.Born}
				}
				got[0].units, got[1].units = roundUp(x.funnel, r.States[0].Level), sum(r.States[1].Buckets)
				if got != [2]version{c.want, c.want} {
					t.Errorf("%s, %v: %v, want %v", name, order, got, c.want)
				}
			})
		}
	})
}

// numbers returns 1, 2, 3 and so on.
func numbers() func() int64 {
	n := int64(0)
	return func() int64 { n++; return n }
}

// permute calls f with every order of n numbers.
func permute(n int, f func(order []int)) {
	order := make([]int, 0, n)
	var next func()
	next = func() {
		if len(order) == n {
			f(slices.Clone(order))
		}
		for i := range n {
			if !slices.Contains(order, i) {
				order = append(order, i)
				next()
				order = order[:len(order)-1]
			}
		}
	}
	next()
}

// An ordinary booking is born when it is booked, by whichever script; a reset begins
// after all that was booked before, also if the clock has been set back since.
func TestBirths(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		x, next := newBookings(t, b), numbers()
		l := &Limiter{x.s}
		states := func() []report.State {
			return exec(t, x.s, &Batch{Node: "r", Seq: next(), Nonce: rand.Uint64(), Accept: true, Ops: []report.Report{
				{Key: x.fk, Rule: x.funnel}, {Key: x.wk, Rule: x.window},
			}}).States
		}
		for i, book := range []func(){
			func() { exec(t, x.s, x.batch(1, 0, 1)) },
			func() { take(t, l, "k", x.funnel, 1); take(t, l, "k", x.window, 1) },
			func() {
				for _, rule := range []*limit.Rule{x.funnel, x.window} {
					if err := l.Set(ctx, "k", rule, 3); err != nil {
						t.Fatal(err)
					}
				}
			},
			func() { exec(t, x.s, x.batch(2, 1, 1)) }, // of a generation: not by the fast path
		} {
			if b.mini != nil {
				b.advance(time.Second)
			}
			before := b.now()
			book()
			for k, st := range states() {
				if st.Born < before || st.Born > b.now() {
					t.Errorf("booking %d, counter %d: born at %d, booked from %d to %d", i, k, st.Born, before, b.now())
				}
			}
		}
		// Booked by a clock that was an hour ahead.
		ahead := b.now() + 3_600_000_000
		b.set(x.fk, fmt.Sprintf("f 0 %d %s %d 0", ahead, rateText(x.funnel), ahead))
		b.set(x.wk, fmt.Sprintf("w 0 %d %d", ahead, widthUS(x.window)))
		for _, rule := range []*limit.Rule{x.funnel, x.window} {
			if err := l.Reset(ctx, "k", rule); err != nil {
				t.Fatal(err)
			}
		}
		for k, st := range states() {
			if st.Gen <= ahead || st.Born >= ahead {
				t.Errorf("counter %d, reset: %+v, what it has cleared was booked at %d", k, st, ahead)
			}
		}
	})
}

// A reset that begins after now was made before the clock was set back, and so was one whose
// content is from after now. Births say nothing then: what has been booked since must not go
// with what the reset cleared.
func TestMergeOfAResetBeforeTheClockWasSetBack(t *testing.T) {
	for _, reset := range []string{"after now", "before now"} {
		t.Run(reset, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *backend) {
				x := newBookings(t, b)
				exec(t, x.s, x.batch(1, 0, 4))
				b.pass()
				known := report.State{Gen: b.now(), Born: b.now() + 3_600_000_000}
				if b.pass(); reset == "after now" {
					known.Gen = known.Born
				}
				r := exec(t, x.s, &Batch{Node: "m", Seq: 1, Accept: true, Ops: []report.Report{
					{Key: x.fk, Rule: x.funnel, Restore: true, Known: known}, {Key: x.wk, Rule: x.window, Restore: true, Known: known},
				}})
				if f, w := roundUp(x.funnel, r.States[0].Level), sum(r.States[1].Buckets); f != 4 || w != 4 {
					t.Errorf("%d and %d units count, 4 each were booked after the clock was set back", f, w)
				}
				for i, st := range r.States {
					if st.Gen != known.Gen {
						t.Errorf("counter %d: generation %d, want %d", i, st.Gen, known.Gen)
					}
				}
			})
		})
	}
}
