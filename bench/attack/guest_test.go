package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// fake is a subject that a test makes up.
type fake struct {
	answer func(key string, n int64) bool
}

func (f fake) ask(key string, n int64) bool { return f.answer(key, n) }
func (fake) warm([]string) error            { return nil }
func (fake) cut(bool)                       {}
func (fake) figures() figures               { return figures{} }
func (fake) close()                         {}

// playFake plays the small version of a row against a made-up limiter, which is given the clock.
func playFake(t *testing.T, s scenario, answer func(c clock.Clock) func(key string, n int64) bool) *measurement {
	t.Helper()
	o := options{0.02, 1}
	_, scale := o.room(s)
	c := clock.NewManual(dawn)
	pass := func(at time.Duration) { c.Set(dawn.Add(at)) }
	m, err := o.play(context.Background(), s, stage{c, pass, fake{answer(c)}}, scale)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// row returns the row of a name.
func row(t *testing.T, name string) scenario {
	t.Helper()
	for _, s := range rows() {
		if s.name == name {
			return s
		}
	}
	t.Fatalf("no row %q", name)
	return scenario{}
}

// A limiter that has room for all keys is right in every row that it can play.
func TestJudgeOfRoomyLimiter(t *testing.T) {
	for _, name := range []string{"fault/1x10", "minute-2000/10x1", "hour-40/1x10", "day-1.5/1x10", "once-90000/1x10"} {
		s := row(t, name)
		m := playFake(t, s, func(c clock.Clock) func(string, int64) bool {
			lim, err := newProcess(c, s.rule, 1<<17)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(lim.close)
			return lim.ask
		})
		if got := m.verdict(); got != "ok" {
			t.Errorf("%s: %s, %+v", name, got, m.Results)
		}
		for of, r := range m.Results {
			if r.Wrong+r.Above > 0 || r.Asked+r.Due == 0 {
				t.Errorf("%s, %s: %+v", name, habits[of].name, r)
			}
		}
	}
}

// A limiter that forgets everything refuses nobody, and admits all above their limits.
func TestJudgeOfForgetfulLimiter(t *testing.T) {
	m := playFake(t, row(t, "once-90000/1x10"), func(clock.Clock) func(string, int64) bool {
		return func(_ string, n int64) bool { return n <= 10 }
	})
	if got, want := m.verdict(), "MISSED: used-up, near-tried, near-untouched"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, of := range []group{usedUp, nearTried, nearUntouched} {
		if r := m.Results[of]; r.Due == 0 || r.Above != r.Due {
			t.Errorf("%s: %+v, want all above", habits[of].name, r)
		}
	}
}

// A limiter that refuses everything during the attack locks out honest guests.
func TestJudgeOfClosedLimiter(t *testing.T) {
	s := row(t, "once-90000/1x10")
	m := playFake(t, s, func(c clock.Clock) func(string, int64) bool {
		lim, err := newProcess(c, s.rule, 1<<17)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(lim.close)
		from := c.Now() + s.lead()
		return func(key string, n int64) bool { return c.Now() < from && lim.ask(key, n) }
	})
	if got := m.verdict(); !strings.HasPrefix(got, "MISSED: honest, new") {
		t.Errorf("%q", got)
	}
	if r := m.Results[honest]; r.Wrong != r.Asked {
		t.Errorf("%+v, want all refused", r)
	}
}

// Guests keep to their habits: those who have taken something have done so before the attack, and
// all but untouched ones ask every tenth to sixth of a period. Where all is refused, the number of
// units says what a call is.
func TestHabits(t *testing.T) {
	s := row(t, "hour-40/1x10")
	filled, last, pauses := map[group]int{}, map[string]time.Duration{}, 0
	playFake(t, s, func(c clock.Clock) func(string, int64) bool {
		from := c.Now()
		return func(key string, n int64) bool {
			of, at := groupOf(key), c.Now()-from
			switch {
			case of == groups: // the attacker
			case n == habits[of].taken && of != nearUntouched || n == 8:
				if at < s.lead() || at%s.pace < s.lead() && habits[of].again {
					filled[of]++
				}
			case n != habits[of].units || at < s.lead():
				t.Errorf("%s takes %d after %v", key, n, at)
			case last[key] > 0 && of != nearUntouched:
				pauses++
				if pause := at - last[key]; pause < s.pace/10-leastPause || pause > s.pace/6+leastPause {
					t.Errorf("%s asks again after %v", key, pause)
				}
				fallthrough
			default:
				last[key] = at
			}
			return false
		}
	})
	_, scale := options{0.02, 1}.room(s)
	for of, h := range habits {
		want := int(float64(h.keys) * scale)
		if h.again {
			want *= 3 // in two rounds of attack, and in the period after them
		}
		if h.taken > 0 && filled[group(of)] != want {
			t.Errorf("%s: %d have taken something at the beginning of a round, want %d", h.name, filled[group(of)], want)
		}
	}
	if pauses == 0 {
		t.Error("nobody has asked twice")
	}
}

// groupOf returns the group of a key, or groups.
func groupOf(key string) group {
	name, _, _ := strings.Cut(key, "/")
	for of := range groups {
		if habits[of].name == name {
			return of
		}
	}
	return groups
}

// The judge counts as the rule does, and enters nothing that is above it.
func TestJudge(t *testing.T) {
	j, err := newJudge(clock.NewManual(dawn), limit.Must(limit.SlidingWindow("attack", 10, time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	if !j.admitted("key", 8) || j.admitted("key", 3) || j.left("key") != 2 || !j.admitted("key", 2) || j.left("key") != 0 {
		t.Errorf("%d units are left", j.left("key"))
	}
}
