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

// The counter's time is the system's, whatever the processor's pace.
func TestTSCFollowsTheSystem(t *testing.T) {
	for _, hz := range []float64{0.1, 1, 2.3, 5, 15} {
		for _, every := range []float64{200, 1e5, 1e7, 1e9} {
			rng := rand.New(rand.NewPCG(uint64(hz*10), uint64(every)))
			m := newMachine(hz)
			last, off := m.watch(t, rng, 0, 1e7, every)
			if off > 500*time.Nanosecond {
				t.Errorf("%v GHz, read every %.0f ns: off by %v", hz, every, off)
			}
			if _, off = m.watch(t, rng, last, every*1e4, every); off > 500*time.Nanosecond || m.line.faults != 0 {
				t.Errorf("%v GHz, read every %.0f ns: then off by %v, %d faults", hz, every, off, m.line.faults)
			}
		}
	}
}

// NTP may pull the clock, and then the other way.
func TestTSCFollowsNTP(t *testing.T) {
	for _, ppm := range []float64{500, 2000, 5000, 83_300} {
		rng := rand.New(rand.NewPCG(uint64(ppm), 1))
		m := newMachine(2.3)
		last, _ := m.watch(t, rng, 0, 1e9, 1e4)
		for _, slew := range []float64{ppm / 1e6, -ppm / 1e6, 0} {
			change := math.Abs(slew - m.slew)
			m.slew = slew
			var off time.Duration
			last, off = m.watch(t, rng, last, 8e6, 1e3)
			if limit := 500*time.Nanosecond + time.Duration(change*float64(lineSpan)); off > limit {
				t.Errorf("%v ppm: off by %v at first, at most %v", ppm, off, limit)
			}
			last, off = m.watch(t, rng, last, 1e9, 1e4)
			if off > 11*time.Microsecond {
				t.Errorf("%v ppm: still off by %v", ppm, off)
			}
			if last, off = m.watch(t, rng, last, 1e9, 1e4); off > 500*time.Nanosecond || m.line.broken() {
				t.Errorf("%v ppm: off by %v a second later, %d faults", ppm, off, m.line.faults)
			}
		}
	}
}

// Fault 35: a counter that jumps or changes its pace is right again soon, and makes nobody go
// back, except by what it has gone back itself while a line was good.
func TestTSCSurvivesItsCounter(t *testing.T) {
	faults := map[string]func(*machine){
		"on by 1 ms":    func(m *machine) { m.counted += 1e6 * m.hz },
		"on by 100 ms":  func(m *machine) { m.counted += 1e8 * m.hz },
		"on by 1 s":     func(m *machine) { m.counted += 1e9 * m.hz },
		"on by 3 s":     func(m *machine) { m.counted += 3e9 * m.hz },
		"on by 20 s":    func(m *machine) { m.counted += 2e10 * m.hz },
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
			for i := range 12 {
				m := newMachine([]float64{1, 2.3}[i%2])
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

// One that is wrong now and then is not given up.
func TestTSCForgives(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	m := newMachine(2)
	var last time.Duration
	for range 3 * mostFaults {
		m.counted += 1e6
		if last, _ = m.watch(t, rng, last, 1e9, 1e5); m.line.broken() {
			t.Fatal("given up")
		}
	}
}

// A processor that is a little behind is told when the line begins.
func TestTSCBehind(t *testing.T) {
	l := &line{from: 1e9, cycles: 1e6, scale: 1 << 31, at: time.Hour}
	for behind, want := range map[uint64]bool{0: true, 1: true, 1000: true, 1e6: true, 1e7: false} {
		if at, ok := l.tells(l.from - behind); ok != want || ok && at != time.Hour {
			t.Errorf("%d cycles before the line: %v, %v", behind, at, ok)
		}
	}
	if _, ok := l.tells(l.from + l.cycles); ok {
		t.Error("good for ever")
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

// Who asks for it in a bubble does not get the bubble's time, and nobody else does.
func TestTSCInABubble(t *testing.T) {
	if !(TSC{}).Native() {
		t.Skip("not native")
	}
	synctest.Test(t, func(t *testing.T) {
		last := TSC{}.Now()
		for range 1_000_000 { // longer than a line
			now := TSC{}.Now()
			if now < last {
				t.Fatalf("%v after %v", now, last)
			}
			last = now
		}
	})
	// Between two readings of the other clock, however long it takes to get there.
	before := System{}.Now()
	now := TSC{}.Now()
	after := System{}.Now()
	if now < before-time.Millisecond || now > after+time.Millisecond || timeline.Load().faults > 0 {
		t.Errorf("afterwards it shows %v, between %v and %v, %d faults", now, before, after, timeline.Load().faults)
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
