package main

import (
	"context"
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
