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

// How much the model says until it hears that alice has gone depends on the machine.
var want = regexp.MustCompile(`^Redis: .*
process 1, max_tokens 200: 200, alice has read 30 tokens of 30, 470 are left
process 2, max_tokens 200: 200, alice has read 70 tokens of 70, 400 are left
process 1, max_tokens 450: 429, alice has read 0 tokens of 0, 400 are left
process 2, max_tokens 300: 200, alice has read 20 tokens of (\d+), (\d+) are left
process 1, max_tokens 0: 200, alice has read 400 tokens of 400, 0 are left
process 2, max_tokens 0: 429, alice has read 0 tokens of 0, 0 are left
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
	said, _ := strconv.Atoi(m[1])
	if left, _ := strconv.Atoi(m[2]); said < 20 || said >= 300 || left != 400-said {
		t.Errorf("printed\n%s", &out)
	}
}

func TestRun(t *testing.T) { check(t) }
