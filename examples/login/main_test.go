package main

import (
	"bytes"
	"context"
	"regexp"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial)) }

// How many of the bot pass depends on when the processes hear of each other: its limit is not exact.
var want = regexp.MustCompile(`^Redis: .*
alice forgets her password: 5 of 8 passwords are checked
a botnet tries alice: 0 of 1000 passwords are checked
calls of Redis for these: ([0-9]+)
a bot tries all accounts: ([0-9]+) of 300 passwords are checked
bob logs in: 1 of 1 passwords are checked
$`)

func check(t *testing.T) {
	t.Helper()
	var out bytes.Buffer
	if err := run(context.Background(), &out); err != nil {
		t.Fatalf("%v, printed\n%s", err, &out)
	}
	m := want.FindStringSubmatch(out.String())
	if m == nil {
		t.Fatalf("printed\n%s", &out)
	}
	// Three refusals have taught both processes already, unless the machine was slow.
	if calls, _ := strconv.Atoi(m[1]); calls > 4 {
		t.Errorf("an attack of 1,000 cost %d calls of Redis", calls)
	}
	if n, _ := strconv.Atoi(m[2]); n < 90 || n > 200 {
		t.Errorf("an address has tried %d passwords of 100", n)
	}
}

func TestRun(t *testing.T) { check(t) }
