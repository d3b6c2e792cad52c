package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// play runs the demo as a user would and returns its result and what it says.
func play(t *testing.T, args ...string) (report, string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(append([]string{"-json"}, args...), &stdout, &stderr)
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, &stderr, &stdout)
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	var r report
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil || len(lines) != 1 {
		t.Fatalf("%d lines on standard output, the last one: %v", len(lines), err)
	}
	return r, stderr.String()
}

func checkReport(t *testing.T, r report) {
	t.Helper()
	if !r.OK || len(r.Broken) != 0 || r.LostUnits != 0 || r.DoubleCounted != 0 || r.PendingUnits != 0 {
		t.Errorf("not as promised: %+v", r)
	}
	sum := int64(0)
	for i, p := range r.Phases {
		sum += p.Admitted
		if p.Name != phaseNames[i] || p.Seconds <= 0 || p.Commands == 0 || p.P50 <= 0 || p.P99 < p.P50 {
			t.Errorf("phase %d: %+v", i, p)
		}
		if p.Admitted > p.AllowedBound || p.AllowedBound > p.Offered || p.WorstWindow > p.WindowBound {
			t.Errorf("more than the bound: %+v", p)
		}
		// The hottest key is offered three times its limit, and 1/k of that make
		// the whole, unless the machine is too busy.
		whole := 3 * float64(r.Limit) / float64(r.WindowMS) * 1000 * 6.28 * p.Seconds
		if float64(p.Offered) > whole/2 && p.WorstWindow < r.Limit*9/10 {
			t.Errorf("%s: no window of a hot key was full: %d of %d", p.Name, p.WorstWindow, r.Limit)
		}
	}
	if len(r.Phases) != int(phases) || sum != r.AdmittedTotal || r.RedisTotal != r.AdmittedTotal || sum == 0 {
		t.Errorf("%d phases that admitted %d, in total %d, accounted for %d", len(r.Phases), sum, r.AdmittedTotal, r.RedisTotal)
	}
}

func TestDemo(t *testing.T) {
	r, said := play(t, "-seconds", "4", "-rule", "500/1s")
	checkReport(t, r)
	if r.DataLost || r.LossesDetected != 0 {
		t.Errorf("a loss where there was none: %+v", r)
	}
	for _, want := range []string{"healthy", "connections are refused", "nothing is answered", "Redis is back", "All promises kept"} {
		if !strings.Contains(said, want) {
			t.Errorf("did not say %q:\n%s", want, said)
		}
	}
}

func TestDemoServer(t *testing.T) {
	s, err := redistest.Launch(redistest.Options{})
	if errors.Is(err, redistest.ErrNotInstalled) && os.Getenv("CI") != "true" {
		t.Skip("needs a real Redis: redis-server is not in PATH")
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	r, _ := play(t, "-seconds", "4", "-rule", "500/1s", "-server")
	checkReport(t, r)
	if !r.DataLost || r.LossesDetected == 0 || r.AfterLoss != 0 {
		t.Errorf("the loss of data: %+v", r)
	}
}

// A run that is interrupted ends at once and reports nothing.
func TestDemoInterrupted(t *testing.T) {
	c, err := parse([]string{"-seconds", "600"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	said := &trigger{word: "\n", then: cancel} // the first line: all are ready
	begun := time.Now()
	if r, err := demo(ctx, c, said); !errors.Is(err, context.Canceled) || r != nil {
		t.Errorf("%v, %v", r, err)
	}
	if d := time.Since(begun); d > time.Minute {
		t.Errorf("ended after %v", d)
	}
}

// trigger is a writer that acts when it is written a word.
type trigger struct {
	word string
	then func()
}

func (w *trigger) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(w.word)) {
		w.then()
	}
	return len(p), nil
}

func TestBadFlags(t *testing.T) {
	for args, want := range map[string]string{
		"-nodes 0":                       "-nodes",
		"-keys 0 -overload 0":            "-overload",
		"-seconds 1":                     "-seconds",
		"-rule 5":                        "-rule",
		"-rule x/1s":                     "-rule",
		"-rule 100/5ms":                  "-rule",
		"-rule 2/1s":                     "-rule",
		"-server -redis localhost:6379":  "exclude",
		"more":                           "unexpected",
		"-redis 127.0.0.1:1 -seconds 10": "no Redis",
		"-nonsense":                      "nonsense",
	} {
		var stdout, stderr bytes.Buffer
		if code := run(strings.Fields(args), &stdout, &stderr); code != exitFailed || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit code %d, %s", args, code, &stderr)
		}
	}
	if code := run([]string{"-h"}, io.Discard, io.Discard); code != 0 {
		t.Errorf("-h: exit code %d", code)
	}
}

// A broken promise is the exit code and is named.
func TestBrokenPromiseExits(t *testing.T) {
	r := &report{Broken: []string{}}
	r.account(&books{acked: []int64{5}, ledger: []int64{4}, before: 1})
	r.OK = len(r.Broken) == 0
	var out bytes.Buffer
	if code := conclude(r, true, &out, io.Discard, io.Discard); code != exitBroken || !strings.Contains(out.String(), "1 units lost") {
		t.Errorf("exit code %d: %s", code, &out)
	}
}

func TestTraffic(t *testing.T) {
	c, err := parse([]string{"-keys", "10", "-overload", "4", "-rule", "100/1s"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	tr := newTraffic(c)
	if tr.edges[0]*3 != 400 || math.Abs((tr.edges[3]-tr.edges[2])*3-100) > 1e-6 {
		t.Errorf("the first and fourth key are asked %v and %v times a second and node", tr.edges[0], tr.edges[3]-tr.edges[2])
	}
	if len(tr.watched) != minWatched+1 || tr.items[tr.watched[minWatched]].key != "quota" {
		t.Errorf("watched: %v", tr.watched)
	}
	if tr.pick(0) != 0 || tr.pick(0.999999) != 10 || tr.pick(1) != 10 {
		t.Errorf("picked %d, %d, %d at the ends", tr.pick(0), tr.pick(0.999999), tr.pick(1))
	}
}

func TestPercentile(t *testing.T) {
	values := []int64{5, 1, 4, 2, 3}
	for p, want := range map[float64]int64{0: 1, 0.2: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := percentile(values, p); got != want {
			t.Errorf("%v: %d, want %d", p, got, want)
		}
	}
	if got := percentile(nil, 0.5); got != 0 {
		t.Errorf("of nothing: %d", got)
	}
}
