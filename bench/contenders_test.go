package bench

import (
	"testing"
	"time"

	uber "go.uber.org/ratelimit"

	"github.com/hybridlimit/hybridlimit/limit"
)

// small is a limit that is used up quickly and does not come back meanwhile.
const small = 100

var smallRule = limit.Must(limit.Funnel("small", small, 1, time.Hour))

// Every contender must admit its limit and not a unit more, key by key: a rival
// that has been told something else makes the comparison a lie.
func TestContendersAdmitTheLimit(t *testing.T) {
	keys := keyNames(3)
	for _, c := range join(inProcess, single, byRule, byState, overRedis) {
		if c.blocks {
			continue // see TestUberAdmitsTheLimit
		}
		t.Run(c.name, func(t *testing.T) {
			n := admitted(c.open(t, keys, smallRule), keys[0])
			if n != small {
				// A window on the wall clock may have turned meanwhile. That
				// is bad luck once, and a fault twice.
				n = admitted(c.open(t, keys, smallRule), keys[0])
			}
			if n != small {
				t.Errorf("admitted %d of %d, want %d", n, 3*small, small)
			}
		})
	}
}

func admitted(a asks, key string) (n int) {
	for range 3 * small {
		if a.allow(key) {
			n++
		}
	}
	return n
}

// A key that is used up must not stand in another's way, except where there is
// only one limiter for everybody.
func TestContendersKeepKeysApart(t *testing.T) {
	keys := keyNames(3)
	for _, c := range join(inProcess, single, byRule, byState, overRedis) {
		if c.blocks {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			a := c.open(t, keys, smallRule)
			admitted(a, keys[0])
			if got := a.allow(keys[1]); got == c.keyless {
				t.Errorf("another key: %v", got)
			}
		})
	}
}

// A peek tells whether there is room, and takes none of it.
func TestContendersPeek(t *testing.T) {
	keys := keyNames(1)
	for _, c := range join(inProcess, single, byRule, byState, overRedis) {
		t.Run(c.name, func(t *testing.T) {
			a := c.open(t, keys, smallRule)
			if a.peek == nil {
				t.Skip("it cannot")
			}
			a.allow(keys[0])
			for range 2 * small {
				if !a.peek(keys[0]) {
					t.Fatal("no room after one unit")
				}
			}
			if n := admitted(a, keys[0]); n != small-1 {
				t.Errorf("then admitted %d, want %d", n, small-1)
			}
			if a.peek(keys[0]) {
				t.Error("room after the limit")
			}
		})
	}
}

// sleepless is a clock for uber's limiter that counts who would have slept.
type sleepless struct {
	now    func() time.Time
	sleeps int
}

func (s *sleepless) Now() time.Time      { return s.now() }
func (s *sleepless) Sleep(time.Duration) { s.sleeps++ }

// Uber's limiter sleeps where others refuse, and admits no more without a sleep
// than its slack and one.
func TestUberAdmitsTheLimit(t *testing.T) {
	at := time.Unix(1_000_000_000, 0)
	c := &sleepless{now: func() time.Time { return at }}
	l := uber.New(1, uber.Per(time.Hour), uber.WithSlack(small-1), uber.WithClock(c))
	l.Take()
	at = at.Add(10 * small * time.Hour)
	for range 3 * small {
		l.Take()
	}
	if got := 3*small - c.sleeps; got != small {
		t.Errorf("admitted %d without a sleep, want %d", got, small)
	}
}

// At the rate of the benchmark it must not sleep, or the row would be about
// sleeping.
func TestUberDoesNotSleepInTheBenchmark(t *testing.T) {
	c := &sleepless{now: time.Now}
	l := uber.New(uberPerSec, uber.WithClock(c))
	const checks = 100_000
	for range checks {
		l.Take()
	}
	if c.sleeps > checks/1000 {
		t.Errorf("%d of %d checks would have slept", c.sleeps, checks)
	}
}
