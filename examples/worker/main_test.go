package main

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var redisLine = regexp.MustCompile(`^Redis: .*\n`)

func TestRun(t *testing.T) {
	const want = `20 jobs, 20 calls of the service
not within a minute; it would take up to 10m0s
reserved, to be used in 0s
reserved, to be used in 10m0s
reserved, to be used in 20m0s
`
	start := time.Now()
	var out bytes.Buffer
	err := run(context.Background(), &out)
	if got := redisLine.ReplaceAllString(out.String(), ""); err != nil || got != want {
		t.Errorf("%v, printed\n%swant\n%s", err, &out, want)
	}
	if took := time.Since(start); took < (20-5)*20*time.Millisecond {
		t.Errorf("20 calls within %v are more than the service takes", took)
	}
}

// Ctrl-C ends the program while it waits.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out bytes.Buffer
	if err := run(ctx, &out); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, printed\n%s", err, &out)
	}
}
