package main

import (
	"bytes"
	"context"
	"regexp"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var times = regexp.MustCompile(`;t=[0-9]+`) // which depend on the machine

func TestRun(t *testing.T) {
	const want = `alice@acme 200 "per user";r=2
alice@acme 200 "per user";r=1
alice@acme 200 "per user";r=0
alice@acme 429 "per user";r=0
bob@acme 200 "per tenant";r=0
bob@acme 429 "per tenant";r=0
carol@globex 200 "per user";r=99
acme has upgraded
alice@acme 200 "per user";r=96
bob@acme 200 "per user";r=98
`
	var out bytes.Buffer
	err := run(context.Background(), &out)
	if got := times.ReplaceAllString(out.String(), ""); err != nil || got != want {
		t.Errorf("%v, printed\n%swant\n%s", err, &out, want)
	}
}
