package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
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
