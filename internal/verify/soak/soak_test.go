package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/rig"
)

// needsServer skips a test where there is no redis-server, but not in CI.
func needsServer(t *testing.T) {
	t.Helper()
	s, err := redistest.Launch(redistest.Options{})
	if errors.Is(err, redistest.ErrNotInstalled) && os.Getenv("CI") != "true" {
		t.Skip("needs a real Redis: redis-server is not in PATH")
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// What is not as promised ends the run early, is named, and is the exit code.
func TestSoakFails(t *testing.T) {
	needsServer(t)
	c, err := parse([]string{"-for", "10m", "-every", "1s", "-nodes", "2"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	c.started = func(r *run) {
		ctx, cancel := r.world.ask()
		defer cancel()
		if err := r.world.direct.Set(ctx, "eternal", "x", 0).Err(); err != nil {
			t.Error(err)
		}
	}
	var said bytes.Buffer
	ok, err := soak(t.Context(), c, &said)
	if ok || err != nil || !strings.Contains(said.String(), "keys without a TTL, among them eternal") || !strings.Contains(said.String(), "-seed ") {
		t.Errorf("%v, %v:\n%s", ok, err, &said)
	}
}

// A run that is interrupted ends at once, as neither good nor bad.
func TestSoakInterrupted(t *testing.T) {
	needsServer(t)
	c, err := parse([]string{"-for", "10m"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.started = func(*run) { cancel() }
	begun := time.Now()
	if ok, err := soak(ctx, c, io.Discard); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", ok, err)
	}
	if d := time.Since(begun); d > time.Minute {
		t.Errorf("ended after %v", d)
	}
}

func TestBadFlags(t *testing.T) {
	for args, want := range map[string]string{
		"-nodes 0":            "-nodes",
		"-nodes 99 -every 1s": "-nodes",
		"-for 0s":             "-for",
		"-for 1m -every 0s":   "-every",
		"more":                "unexpected",
		"-nonsense":           "nonsense",
		"-seed x":             "seed",
	} {
		var stdout, stderr bytes.Buffer
		if code := start(strings.Fields(args), &stdout, &stderr); code != rig.ExitFailed || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit code %d, %s", args, code, &stderr)
		}
	}
	if code := start([]string{"-h"}, io.Discard, io.Discard); code != 0 {
		t.Errorf("-h: exit code %d", code)
	}
}

func values(n int, f func(i int) float64) (out []float64) {
	for i := range n {
		out = append(out, f(i))
	}
	return out
}

func TestTrend(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	noise := func() float64 { return 4 * rng.NormFloat64() }
	for _, c := range []struct {
		name              string
		values            []float64
		grown, soars, few bool
	}{
		{"flat", values(60, func(int) float64 { return 100 }), false, false, false},
		{"noise", values(60, func(int) float64 { return 100 + noise() }), false, false, false},
		{"warms up", values(60, func(i int) float64 { return 100 * (1 - math.Exp(-float64(i)/5)) }), false, false, false},
		{"begins with nothing", values(60, func(i int) float64 { return float64(100 * min(i/20, 1)) }), false, false, false},
		{"outages", values(60, func(i int) float64 { return 100 + 1000*float64(i%3/2) + noise() }), false, false, false},
		{"falls", values(60, func(i int) float64 { return 1000 - 10*float64(i) }), false, false, false},
		{"leaks slowly", values(60, func(i int) float64 { return 100 + float64(i) + noise() }), true, false, false},
		{"leaks slowly, long", values(2000, func(i int) float64 { return 100 + float64(i)/30 + noise() }), true, false, false},
		{"leaks fast", values(60, func(i int) float64 { return 100 + 50*float64(i) }), true, true, false},
		{"late step", values(60, func(i int) float64 { return 100 + 100*float64(i/40) }), true, true, false},
		{"too few", values(leastSamples-1, func(i int) float64 { return float64(i * i) }), false, false, true},
	} {
		s := series{scale: 1, slack: 0.1, least: 5, values: c.values}
		_, _, grown, ok := s.grown()
		if grown != c.grown || s.soars() != c.soars || ok == c.few {
			t.Errorf("%s: grown %v, soars %v, enough %v: %v", c.name, grown, s.soars(), ok, &s)
		}
	}
}

func says(id string, counted, acked, expired int64) account {
	return account{id: id, counted: counted, stats: inside.Figures{
		AdmittedUnits: counted, BookedUnits: acked, ExpiredUnits: expired, PendingUnits: counted - acked - expired,
	}}
}

func TestBooks(t *testing.T) {
	one := func(units int64) ledgers { return ledgers{"a": units} }
	for _, c := range []struct {
		name string
		play func(b *books)
		want string
	}{
		{"all booked", func(b *books) { a := []account{says("a", 10, 10, 0)}; b.audit(a, one(10), a, true) }, ""},
		{"booked, not yet acknowledged", func(b *books) { a := []account{says("a", 10, 7, 0)}; b.audit(a, one(10), a, false) }, ""},
		{"acknowledged, not booked", func(b *books) { a := []account{says("a", 10, 8, 0)}; b.audit(a, one(7), a, false) }, "but acknowledged 8"},
		{"booked twice", func(b *books) { a := []account{says("a", 10, 10, 0)}; b.audit(a, one(11), a, false) }, "booked 11 units"},
		{"booked and expired", func(b *books) { a := []account{says("a", 10, 7, 3)}; b.audit(a, one(8), a, false) }, "booked 8 units"},
		{"booked late", func(b *books) { a := []account{says("a", 10, 7, 0)}; b.audit(a, one(8), a, true) }, "booked 8 units"},
		{"a ledger of nobody", func(b *books) { b.audit(nil, one(1), nil, false) }, "nobody"},
		{"admitted while reading", func(b *books) {
			b.audit([]account{says("a", 10, 8, 0)}, one(12), []account{says("a", 12, 12, 0)}, false)
		}, ""},
		{"goes on after a loss", func(b *books) {
			b.turn([]account{says("a", 10, 8, 0)}, one(10), one(10), true) // 2 were not acknowledged
			a := []account{says("a", 15, 15, 0)}
			b.audit(a, one(7), a, true) // and are booked again
		}, ""},
		{"a loss excuses no more", func(b *books) {
			b.turn([]account{says("a", 10, 8, 0)}, one(10), one(10), true)
			a := []account{says("a", 15, 15, 0)}
			b.audit(a, one(8), a, true)
		}, "booked 18 units"},
		{"one of two ledgers lost", func(b *books) {
			b.turn([]account{says("a", 10, 10, 0)}, one(10), one(4), false)
			a := []account{says("a", 11, 11, 0)}
			b.audit(a, one(7), a, true)
		}, ""},
		{"crashed", func(b *books) { b.retire(says("a", 10, 7, 1)); b.audit(nil, one(9), nil, false) }, ""},
		{"crashed, booked twice", func(b *books) { b.retire(says("a", 10, 7, 1)); b.audit(nil, one(10), nil, false) }, "booked 10 units"},
		{"miscounts", func(b *books) {
			a := says("a", 10, 10, 0)
			a.counted = 11
			b.sum([]account{a})
		}, "counted 11"},
		{"acknowledged too much", func(b *books) { b.sum([]account{says("a", 10, 9, 2)}) }, "9 acknowledged"},
	} {
		said := ""
		b := newBooks(func(format string, args ...any) { said += strings.TrimSpace(fmt.Sprintf(format, args...)) + "\n" })
		c.play(b)
		if c.want == "" && said != "" || !strings.Contains(said, c.want) {
			t.Errorf("%s: %q", c.name, said)
		}
	}
}
