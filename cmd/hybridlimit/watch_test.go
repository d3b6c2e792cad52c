package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func TestWatchKey(t *testing.T) {
	_, flags := real(t)
	cli(t, with(flags, "set", "acme", "950", slowly)...).want(t, exitOK)
	o := cli(t, with(flags, "watch", "acme", slowly, "--count=3", "--interval=10ms")...).want(t, exitOK)
	lines := strings.Split(strings.TrimSpace(o.out), "\n")
	if len(lines) != 4 {
		t.Fatalf("not a title and three rows: %s", o.out)
	}
	for _, line := range lines[1:] {
		if len(line) != len(lines[0]) || strings.Join(strings.Fields(line)[1:], " ") != "950 1,000 50 now 19792d" {
			t.Errorf("%q under %q", line, lines[0])
		}
	}
}

func TestWatchJSON(t *testing.T) {
	s, flags := real(t)
	beat(t, s, 0, 1)
	o := cli(t, with(flags, "watch", "--json", "--count=2", "--interval=10ms")...).want(t, exitOK)
	n := 0
	for line := range strings.Lines(o.out) {
		var got totals
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		if got.Nodes != 1 || got.Keys == nil || *got.Keys != 2 || got.Memory == nil || got.Clients == nil || got.Commands == nil || got.Time == "" {
			t.Errorf("%s", line)
		}
		n++
	}
	if n != 2 {
		t.Errorf("%d lines", n)
	}
	o = cli(t, with(flags, "watch", "k", slowly, "--json", "--count=1")...).want(t, exitOK)
	var got watchedKey
	if err := json.Unmarshal([]byte(o.out), &got); err != nil || got.Time == "" || got.Key != "k" || got.Remaining != 1000 {
		t.Errorf("%v: %s", err, o.out)
	}
}

// A server that does not say how it is, is no error.
func TestWatchWithoutInfo(t *testing.T) {
	_, flags := real(t, "--rename-command", "INFO", "", "--rename-command", "DBSIZE", "")
	cli(t, with(flags, "watch", "--count=1")...).want(t, exitOK).says(t, "0 - - - -")
}

// lines is where a command prints; it calls then after each line.
type lines struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	then func(line string)
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(p) {
		l.then(string(line))
	}
	return l.buf.Write(p)
}

// An outage ends nothing: it is shown, and so is its end. To interrupt is no error.
func TestWatchOutlastsAnOutage(t *testing.T) {
	s := redistest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := false
	out := &lines{then: func(line string) {
		switch {
		case strings.Contains(line, "connection refused"):
			if !failed {
				failed = true
				if err := s.Restart(); err != nil {
					t.Error(err)
					cancel()
				}
			}
		case strings.Contains(line, "now") && failed:
			cancel()
		case strings.Contains(line, "now"):
			s.Kill()
		}
	}}
	var errOut bytes.Buffer
	p := &program{ctx: ctx, out: out, errOut: &errOut}
	if code := p.run([]string{"watch", "k", slowly, at(s), "--timeout=30s", "--interval=10ms"}); code != exitOK || !failed {
		t.Errorf("exit code %d, %s%s", code, out.buf.String(), errOut.String())
	}
}
