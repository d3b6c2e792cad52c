package main

import (
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// small is a fiftieth of the rows' MaxKeys, also with an embedded Redis.
var (
	small        = options{0.02, 1}
	smallVirtual = options{small.scale / embeddedPart, 1}
)

// squeezed returns a row of an hour that takes a minute: all but what takes no longer than a report.
func squeezed(s scenario) scenario {
	if s.rule == hour {
		by := s.rule.Period() / time.Minute
		s.rule, s.pace = minute, minute.Period()
		s.attack.rate *= float64(by)
		s.attack.length /= by
		s.away /= by
	}
	return s
}

// complete checks that each group was asked what it is there for. Whether bounds hold is for the
// command: the rows here have other ones.
func complete(t *testing.T, m *measurement) {
	t.Helper()
	for of := range groups {
		r, meek := m.Results[of], habits[of].meek
		if meek && r.Asked == 0 || !meek && r.Due == 0 || r.Wrong > r.Asked || r.Above > r.Due {
			t.Errorf("%s: %s: %+v", m.name, habits[of].name, r)
		}
	}
	if m.Checks == 0 {
		t.Errorf("%s: there was no attack", m.name)
	}
	var b strings.Builder
	m.row(&b)
	t.Log(b.String())
}

func TestSmall(t *testing.T) {
	for _, s := range rows() {
		if s.place == alone && strings.HasSuffix(s.name, "/1x10") {
			m, err := small.measure(t.Context(), s)
			if err != nil {
				t.Fatal(s.name, err)
			}
			complete(t, m)
		}
	}
}

// skipIfShort leaves out what takes seconds, and with the race detector a minute.
func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long: scripts on an embedded Redis")
	}
}

func TestSmallVirtual(t *testing.T) {
	skipIfShort(t)
	for _, name := range []string{"minute-2000/1x10/redis", "unreported-10000", "away-90000/1x10"} {
		complete(t, play(t, smallVirtual, squeezed(row(t, name))))
	}
}

// Hardly any attack harms nobody, also with Redis: what the other rows miss is due to the attack.
func TestQuietVirtual(t *testing.T) {
	skipIfShort(t)
	s := row(t, "minute-2000/1x10/redis")
	s.attack.rate = 5
	m := play(t, smallVirtual, s)
	complete(t, m)
	if m.verdict() != "ok" {
		t.Error(m.verdict())
	}
}

func TestSmallReal(t *testing.T) {
	redistest.Start(t).Close() // skips where there is none
	for _, name := range []string{"nodes-50000", "nodes-50000-starved"} {
		s := row(t, name)
		s.pace, s.attack.length = 1500*time.Millisecond, 1500*time.Millisecond
		m, err := small.measure(t.Context(), s)
		if err != nil {
			t.Fatal(name, err)
		}
		complete(t, m)
	}
}
