package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
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
	figures := filepath.Join(t.TempDir(), "figures")
	r, said := play(t, "-seconds", "4", "-rule", "500/1s", "-figures", figures)
	checkReport(t, r)
	checkFigures(t, figures)
	if r.DataLost || r.LossesDetected != 0 {
		t.Errorf("a loss where there was none: %+v", r)
	}
	narrow(t, said)
	for _, want := range []string{"healthy", "connections are refused", "nothing is answered", "Redis is back", "All promises kept"} {
		if !strings.Contains(said, want) {
			t.Errorf("did not say %q:\n%s", want, said)
		}
	}
}

// checkFigures checks the figures of a run of 4 s whose windows take 1 s.
func checkFigures(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	moments, outage := 0, 0
	for line := range strings.Lines(string(text)) {
		var at string
		var seconds, limit, offered, hot, admitted, p99 float64
		var degraded, away int
		_, err := fmt.Sscanf(line, "BenchmarkOutage/%s 1 %f s %f limit/s %f offered/s %f hot/s %f admitted/s %d degraded %d away %f p99-us",
			&at, &seconds, &limit, &offered, &hot, &admitted, &degraded, &away, &p99)
		if err != nil || seconds != 1+0.25*float64(moments) || limit != 500 || hot > offered || hot > 4*admitted || degraded > 3 || p99 < 0 {
			t.Errorf("%v: %s", err, line)
		}
		moments, outage = moments+1, outage+away
	}
	// From 1.8 to 2.8 s Redis is away, on a machine that is not too busy.
	if moments < 13 || outage < 3 || outage == moments {
		t.Errorf("%d moments, %d of them in the outage:\n%s", moments, outage, text)
	}
}

// A run that is interrupted ends at once, and sums up what there was until then.
func TestDemoInterrupted(t *testing.T) {
	c, err := parse([]string{"-seconds", "600", "-nodes", "2"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	said := &trigger{word: "synced", then: cancel} // the line of the first second
	begun := time.Now()
	r, err := demo(ctx, c, said)
	if !errors.Is(err, context.Canceled) || r == nil || !r.Interrupted {
		t.Fatalf("%v, %+v", err, r)
	}
	if d := time.Since(begun); d > time.Minute {
		t.Errorf("ended after %v", d)
	}
	if len(r.Phases) != 1 || r.Phases[0].Offered == 0 || r.AdmittedTotal == 0 || r.AdmittedTotal != r.Phases[0].Admitted {
		t.Errorf("summed up %+v", r)
	}
	var out, stdout, stderr bytes.Buffer
	if code := interrupted(r, true, &out, &stdout, &stderr); code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"\nhealthy ", "Interrupted: "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the summary lacks %q:\n%s", want, &out)
		}
	}
	if !strings.Contains(stdout.String(), `"interrupted":true`) || strings.Contains(out.String(), "promises kept") {
		t.Errorf("printed %s and\n%s", &stdout, &out)
	}
	narrow(t, out.String())
}

// narrow fails if a line does not fit a terminal.
func narrow(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, " \n")); n > columns80 {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
}

// Numbers of any size leave the columns where they are.
func TestLinesAreNarrow(t *testing.T) {
	big := phaseReport{Name: "recovered", Seconds: 3600, Offered: 1 << 40, Admitted: 999_999, AllowedBound: 123_456_789,
		WorstWindow: 9_999_999_999, WindowBound: arith.MaxUnits, P50: 999_999, P99: 99_999_999_999, Commands: 12_345_678}
	r := &report{Phases: []phaseReport{big}, Limit: 1 << 40, WindowMS: 3_600_000, AdmittedTotal: 1 << 40, RedisTotal: 1 << 40,
		DataLost: true, Broken: []string{strings.Repeat("a promise that is long ", 10)}}
	var out bytes.Buffer
	r.print(&out)
	var states []hybrid.State
	for i := range 99 {
		states = append(states, hybrid.State{Mode: hybrid.Synced + hybrid.Mode(i%3)})
	}
	(&show{out: &out}).columns(tenths(3600)+"s", recovered, count(9_999_999_999), "1000 %", stateText(states), count(99_999_999), short(99_999_999), count(999_999))
	narrow(t, out.String())
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
		"-rule 9000000000000/24h":        "checks/s in all",
		"-seconds 1":                     "-seconds",
		"-rule 5":                        "-rule",
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
