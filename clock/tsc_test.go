package clock

import (
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// machine is a processor with a counter, and the clock of its system. Both are
// functions of the true time.
type machine struct {
	t       float64 // true time, ns
	hz      float64 // of the counter, per ns
	counted float64
	slew    float64 // of the system's clock: what it gains per ns
	shown   float64 // by the system's clock
	line    *line
	back    time.Duration // by how much its time may go back
}

func newMachine(hz float64) *machine {
	return &machine{hz: hz, counted: 1e9, shown: 1e9, line: new(line)}
}

func (m *machine) pass(ns float64) {
	m.t += ns
	m.counted += ns * m.hz
	m.shown += ns * (1 + m.slew)
}

func (m *machine) cycles() uint64      { return uint64(m.counted) }
func (m *machine) real() time.Duration { return time.Duration(m.shown) }

// now is TSC.Now on this machine, which takes its time to read its clocks.
func (m *machine) now(rng *rand.Rand) time.Duration {
	if d := m.cycles() - m.line.from; d < m.line.cycles {
		return m.line.after(d)
	}
	m.pass(rng.Float64() * 30)
	real := m.real()
	m.pass(rng.Float64() * 30)
	if m.line.broken() {
		return max(real, m.line.end())
	}
	if t, ok := m.line.tells(m.cycles()); ok {
		return t
	}
	if m.line.young(real) {
		return max(real, m.line.at)
	}
	m.line = m.line.follow(m.cycles(), real)
	return m.line.at
}

// watch reads the time of m for so long, at intervals of every ns on average, and
// returns by how much it was off at the most. Time does not go back.
func (m *machine) watch(t *testing.T, rng *rand.Rand, last time.Duration, long, every float64) (now, off time.Duration) {
	t.Helper()
	for end := m.t + long; m.t < end; {
		m.pass(rng.ExpFloat64() * every)
		now = m.now(rng)
		if now < last-m.back {
			t.Fatalf("after %.0f ns: %v after %v", m.t, now, last)
		}
		last = now
		off = max(off, (now - m.real()).Abs())
	}
	return now, off
}

// The counter's time is the system's, whatever the processor's pace and however NTP
// pulls the clock.
func TestTSCFollowsTheSystem(t *testing.T) {
	for _, hz := range []float64{0.1, 1, 2.3, 5, 15} {
		for _, slew := range []float64{0, 500e-6, -500e-6} {
			for _, every := range []float64{200, 1e5, 1e7, 1e9} {
				rng := rand.New(rand.NewPCG(uint64(hz*10), uint64(every)))
				m := newMachine(hz)
				last, off := m.watch(t, rng, 0, every*1e4, every)
				if off > 500*time.Nanosecond {
					t.Errorf("%v GHz, read every %.0f ns: off by %v", hz, every, off)
				}
				m.slew = slew
				_, off = m.watch(t, rng, last, every*1e4, every)
				if limit := 500*time.Nanosecond + time.Duration(math.Abs(slew)*float64(lineSpan)); off > limit {
					t.Errorf("%v GHz, slewed by %v, read every %.0f ns: off by %v", hz, slew, every, off)
				}
				if m.line.faults != 0 {
					t.Errorf("%v GHz: %d faults found", hz, m.line.faults)
				}
			}
		}
	}
}

// A counter that jumps or changes its pace is right again soon, and makes nobody go
// back, except by what it has gone back itself while a line was good.
func TestTSCSurvivesItsCounter(t *testing.T) {
	faults := map[string]func(*machine){
		"on by 1 ms":    func(m *machine) { m.counted += 1e6 * m.hz },
		"on by an hour": func(m *machine) { m.counted += 3.6e12 * m.hz },
		"back by 10 us": func(m *machine) { m.counted -= 1e4 * m.hz },
		"back by 3 ms":  func(m *machine) { m.counted -= 3e6 * m.hz },
		"back to 0":     func(m *machine) { m.counted = 0 },
		"faster":        func(m *machine) { m.hz *= 1.4 },
		"slower":        func(m *machine) { m.hz /= 3 },
		"pause":         func(m *machine) { m.pass(1e11) },
		"clock set on":  func(m *machine) { m.shown += 1e9 },
	}
	for name, happen := range faults {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			for range 10 {
				m := newMachine(2.3)
				last, _ := m.watch(t, rng, 0, 2e9*rng.Float64(), 1e5)
				happen(m)
				if strings.HasPrefix(name, "back") {
					m.back = lineSpan
				}
				last, off := m.watch(t, rng, last, 2e7, 1e3)
				m.back = 0
				if off > 2*lineSpan && name != "clock set on" {
					t.Fatalf("off by %v", off)
				}
				if _, off = m.watch(t, rng, last, 1e7, 1e3); off > time.Microsecond {
					t.Fatalf("still off by %v after 20 ms", off)
				}
			}
		})
	}
}

// A counter without a pace of its own is given up.
func TestTSCGivesUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	m := newMachine(2)
	var last time.Duration
	for range 100 {
		m.hz = 1 + 3*rng.Float64()
		last, _ = m.watch(t, rng, last, 1e7, 1e4)
	}
	if !m.line.broken() {
		t.Fatalf("%d faults found", m.line.faults)
	}
	m.watch(t, rng, last, 1e7, 1e4)
	if _, off := m.watch(t, rng, last, 1e8, 1e4); off > 60*time.Nanosecond {
		t.Errorf("off by %v without the counter", off)
	}
}

// TSC shows the same time as System, and goes on as it does. Where it is not native
// they are one.
func TestTSCIsTheSystemsTime(t *testing.T) {
	t.Logf("native: %v", TSC{}.Native())
	var last time.Duration
	agreed := 0
	for begun := (System{}).Now(); (System{}).Now()-begun < 50*time.Millisecond; {
		before := System{}.Now()
		now := TSC{}.Now()
		after := System{}.Now()
		if now < last-time.Microsecond {
			t.Fatalf("%v after %v", now, last)
		}
		last = now
		// An interval that took long proves nothing; a wrong reading would show in
		// most of them.
		if now >= before-10*time.Microsecond && now <= after+10*time.Microsecond {
			agreed++
		} else {
			agreed--
		}
	}
	if agreed < 0 {
		t.Error("it is off by more than 10 us most of the time")
	}
}

// Several who ask one after the other have the same time.
func TestTSCTogether(t *testing.T) {
	baton, done := make(chan time.Duration), make(chan struct{})
	var all sync.WaitGroup
	for range max(runtime.GOMAXPROCS(0), 2) {
		all.Go(func() {
			for {
				var last time.Duration
				select {
				case last = <-baton:
				case <-done:
					return
				}
				now := TSC{}.Now()
				if now < last-10*time.Microsecond {
					t.Errorf("%v after another's %v", now, last)
				}
				select {
				case baton <- now:
				case <-done:
					return
				}
			}
		})
	}
	baton <- 0
	for range 20_000 {
		baton <- <-baton
	}
	close(done)
	all.Wait()
}

func TestReader(t *testing.T) {
	coarse := NewCoarse(time.Millisecond)
	defer coarse.Stop()
	manual := NewManual(time.Unix(100, 0))
	for _, of := range []struct {
		clock  Clock
		steady bool
	}{{nil, true}, {System{}, true}, {TSC{}, true}, {coarse, true}, {manual, false}, {Skewed{Of: System{}}, false}} {
		r := ReaderOf(of.clock)
		if r.Steady() != of.steady {
			t.Errorf("%T: steady is %v", of.clock, r.Steady())
		}
		if d := (r.Now() - Or(of.clock).Now()).Abs(); d > time.Minute {
			t.Errorf("%T: the reader is off by %v", of.clock, d)
		}
	}
	if (TSC{}).Native() && ReaderOf(nil) != ReaderOf(TSC{}) {
		t.Error("the default is not the cheapest")
	}
	synctest.Test(t, func(t *testing.T) {
		if ReaderOf(nil) != (Reader{}) {
			t.Error("the default does not follow the bubble")
		}
	})
	manual.Advance(time.Second)
	if r := ReaderOf(manual); r.Now() != 101*time.Second {
		t.Errorf("it shows %v", r.Now())
	}
}
