package main

import (
	"bytes"
	"regexp"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	const want = `alice from 192.0.2.1 200 "per user";r=2
alice from 192.0.2.2 200 "per user";r=1
alice from 192.0.2.3 200 "per user";r=0
alice from 192.0.2.4 429 "per user";r=0
bob from 192.0.2.9 200 "per address";r=4
bob from 192.0.2.9 200 "per address";r=3
bob from 192.0.2.9 200 "per address";r=2
bob from 192.0.2.9 200 "per address";r=1
bob from 192.0.2.9 200 "per address";r=0
bob from 192.0.2.9 429 "per address";r=0
bob from 192.0.2.8 200 "per address";r=4
`
	var out bytes.Buffer
	err := run("", &out)
	if got := regexp.MustCompile(`;t=[0-9]+`).ReplaceAllString(out.String(), ""); err != nil || got != want { // the time depends on the machine
		t.Errorf("%v, printed\n%swant\n%s", err, &out, want)
	}
}
