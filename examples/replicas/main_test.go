package main

import (
	"bytes"
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial))
}

// What does not depend on when the replicas hear of each other is written out.
var want = regexp.MustCompile(`^Redis: .*
12 requests, .*
192.0.2.1: 12 admitted, by the replicas \[4 4 4\]
192.0.2.1: (\d+) admitted, by the replicas \[[0-9 ]+\]
Redis has crashed: .*
192.0.2.2: 30 admitted, by the replicas \[10 10 10\]
Redis is back, .*
192.0.2.1: (\d) admitted, by the replicas \[[0-9 ]+\]
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
	// All replicas knew that 18 were left: none admits more by itself, and replicas that share
	// nothing admit 78. Together they admit 18, and leave some only if one of them has lost sight
	// of a busy Redis for a moment and given no more than its share.
	n, later := number(t, m[1]), number(t, m[2])
	if n < 1 || n > 3*18 || n >= 18 && later > 0 {
		t.Errorf("printed\n%s", &out)
	}
	return out.String()
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
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
