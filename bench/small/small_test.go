package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/bench/internal/fleet"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/rig"
	"github.com/hybridlimit/hybridlimit/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial)) }

// A key that was never admitted has no fullest window, and what one key has too many does not
// make up for what another one misses.
func TestAdmitted(t *testing.T) {
	a, right := fleet.Admitted{{1, 2, 3}, {}, {5}}, fleet.Admitted{{1}, {4}, {5, 6, 7}}
	if mean, most := a.FullestWindows(2); mean != 1.5 || most != 2 || a.Units() != 4 {
		t.Errorf("mean %v, most %d of %d units", mean, most, a.Units())
	}
	if n := a.Missing(right); n != 3 {
		t.Errorf("%d units are missing, want 1 and 2", n)
	}
}

// All rows have names of their own. Keys are offered more than their limit, and as often as a
// row says.
func TestTraffic(t *testing.T) {
	const length = 60 * time.Second
	names := map[string]bool{}
	for _, r := range rows() {
		if names[r.String()] {
			t.Errorf("%v is there twice", r)
		}
		names[r.String()] = true
		tr := newTraffic(r, length)
		if !slices.IsSortedFunc(tr.arrivals, func(a, b arrival) int { return int(a.at - b.at) }) {
			t.Errorf("%v: not in the order of time", r)
		}
		perKey, nodes := make([]int, len(tr.names)), map[int]map[int]bool{}
		for _, a := range tr.arrivals {
			perKey[a.key]++
			if nodes[a.key] == nil {
				nodes[a.key] = map[int]bool{}
			}
			nodes[a.key][a.node] = true
			if a.node < 0 || a.node >= r.nodes || a.at < 0 || a.at > length {
				t.Fatalf("%v: %+v", r, a)
			}
		}
		least, most := int(2*r.limit*int64(length/r.per)), r.nodes
		if r.pattern.span() > 0 {
			least = burstSize
		}
		if r.pattern == sticky {
			most = 1
		}
		for key, n := range perKey {
			if n < least || len(nodes[key]) > most {
				t.Errorf("%v: key %d is asked for %d times at %d nodes, want %d times or more at %d or less", r, key, n, len(nodes[key]), least, most)
			}
		}
	}
}

// A key is watched from the unit that uses it up, until the last of the other nodes refuses.
// The one that admitted the unit is not asked. One that never refuses ends the wait.
func TestWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := limit.Must(limit.SlidingWindow("window", 2, period))
		f, err := fleet.Local(3, rule)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		w, err := newWatcher(rule, f.Limiters)
		if err != nil {
			t.Fatal(err)
		}
		defer w.close()
		w.start()
		for _, key := range []string{"never", "late"} {
			w.admitted(key, 0, rig.Now())
			time.Sleep(time.Second)
			w.admitted(key, 0, rig.Now()) // is used up now
		}
		for node, n := range []int{0, 2, 2} {
			time.Sleep(10 * time.Millisecond)
			for range n {
				f.Limiters[node].Allow("late", rule)
			}
		}
		time.Sleep(longestWait)
		w.stop()
		slices.Sort(w.took)
		if len(w.took) != 2 || w.took[0] < 30*time.Millisecond || w.took[0] > 30*time.Millisecond+watchPace || w.took[1] != longestWait || w.never != 1 {
			t.Errorf("took %v, %d never: want 30 ms, and once the whole wait", w.took, w.never)
		}
	})
}

// Two rows on real servers, with windows of a second. The slack is for the time between the
// entry of a unit in the record and the decision, which a time-out of 250 ms bounds: a shorter
// window never holds more.
func TestMeasure(t *testing.T) {
	if redistest.Default() == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs a real Redis: redis-server is not in PATH")
		}
		t.Skip("needs a real Redis: redis-server is not in PATH")
	}
	const slack = 300 * time.Millisecond
	busy := load{20, 40, time.Second}
	for _, r := range []row{{random, true, 5, 10, busy}, {random, false, 5, 10, busy}} {
		m, err := measure(r, 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		bound := int(r.limit + (r.limit+9)/10) // of a window: a bucket more
		if !r.window {
			bound = int(2 * r.limit) // of a bucket: what it holds, and what it gets within a second
		}
		for _, s := range m.subjects {
			_, most := s.log.FullestWindows(r.per - slack)
			if (s.name == one || s.waits) && most > bound {
				t.Errorf("%v, %s: %d units within a second, want at most %d", r, s.name, most, bound)
			}
			if s.log.Units() == 0 {
				t.Errorf("%v, %s has admitted nothing", r, s.name)
			}
		}
		checkLines(t, m)
	}
}

// checkLines parses what is printed: each figure has a unit, and each limiter a line.
func checkLines(t *testing.T, m *measurement) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(m.lines()), "\n")
	for i, s := range m.subjects {
		f := strings.Fields(lines[i])
		if want := fmt.Sprintf("BenchmarkSmall/%s/%v", s.name, m.row); f[0] != want || len(f)%2 != 0 {
			t.Fatalf("%q, want %s and pairs", lines[i], want)
		}
		values := map[string]float64{}
		for j := 2; j+1 < len(f); j += 2 {
			v, err := strconv.ParseFloat(f[j], 64)
			if err != nil {
				t.Fatalf("%q: %v", lines[i], err)
			}
			values[f[j+1]] = v
		}
		if s.server != nil && (values["calls/s"] <= 0 || values["redis-us/check"] <= 0) {
			t.Errorf("Redis was not asked: %s", lines[i])
		}
		if s.name != one && values["to-one"] <= 0 {
			t.Errorf("not compared: %s", lines[i])
		}
	}
}
