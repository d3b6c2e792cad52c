package main

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	logging.Disable()
	goleak.VerifyTestMain(m)
}

// What does not depend on when the replicas hear of each other; that is in the brackets.
var want = regexp.MustCompile(`^Redis: .*
12 requests, .*
192.0.2.1: 12 admitted, by the replicas \[4 4 4\]
192.0.2.1: (\d+) admitted, by the replicas \[[0-9 ]+\]
Redis has crashed: .*
192.0.2.2: 30 admitted, by the replicas \[10 10 10\]
Redis is back, .*
192.0.2.1: 0 admitted, by the replicas \[0 0 0\]
192.0.2.2: 0 admitted, by the replicas \[0 0 0\]
$`)

func printed(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(context.Background(), &out); err != nil {
		t.Fatalf("%v, printed\n%s", err, &out)
	}
	m := want.FindStringSubmatch(out.String())
	if m == nil {
		t.Fatalf("printed\n%s", &out)
	}
	// All replicas knew that 18 were left: no one admits more by itself, and together not
	// fewer. Replicas that share nothing admit 78.
	var n int
	if _, err := fmt.Sscan(m[1], &n); err != nil || n < 18 || n > 3*18 {
		t.Errorf("%v, printed\n%s", err, &out)
	}
	return out.String()
}

func TestRun(t *testing.T) { t.Log(printed(t)) }

// Without redis-server the program says so, and shows the same.
func TestRunEmbedded(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("REDISTEST_BINARY", "")
	if out := printed(t); !strings.Contains(out, "not installed") {
		t.Errorf("printed\n%s", out)
	}
}

// Ctrl-C ends the program where it is.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := run(ctx, new(bytes.Buffer)); err == nil {
		t.Error("it went on")
	}
}
