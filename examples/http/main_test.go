package main

import (
	"bytes"
	"context"
	"regexp"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// depends is what is not the same each time: where Redis is, and times.
var depends = regexp.MustCompile(`^Redis: .*\n|;t=[0-9]+`)

func TestRun(t *testing.T) {
	const want = `alice from 192.0.2.1 200 "per user";r=2
alice from 192.0.2.2 200 "per user";r=1
alice from 192.0.2.1 200 "per user";r=0
alice from 192.0.2.3 429 "per user";r=0
bob from 192.0.2.9 200 "per user";r=2
bob from 192.0.2.9 200 "per user";r=1
carol from 192.0.2.9 200 "per user";r=2
carol from 192.0.2.9 200 "per user";r=1
carol from 192.0.2.9 200 "per user";r=0
dave from 192.0.2.9 429 "per address";r=0
dave from 192.0.2.8 200 "per user";r=2
`
	var out bytes.Buffer
	err := run(context.Background(), &out)
	if got := depends.ReplaceAllString(out.String(), ""); err != nil || got != want {
		t.Errorf("%v, printed\n%swant\n%s", err, &out, want)
	}
}
