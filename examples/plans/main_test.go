package main

import (
	"bytes"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	const want = `alice (free) calls 8 times: allowed, 2 left
alice (free) calls 5 times: refused, 2 left
alice (pro) calls 5 times: allowed, 987 left
bob (free) calls 1 times: allowed, 9 left
`
	synctest.Test(t, func(t *testing.T) { // whose clock is far from the end of a window
		var out bytes.Buffer
		if err := run(&out); err != nil || out.String() != want {
			t.Errorf("%v, printed\n%swant\n%s", err, &out, want)
		}
	})
}
