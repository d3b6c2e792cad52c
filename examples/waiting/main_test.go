package main

import (
	"bytes"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	const want = `job 0 calls the upstream
job 1 calls the upstream
job 2 calls the upstream
not within the deadline; it would take up to 20ms
reserved, to be used in 0s
reserved, to be used in 10m0s
reserved, to be used in 20m0s
`
	synctest.Test(t, func(t *testing.T) { // whose time passes only while everybody waits
		var out bytes.Buffer
		if err := run(&out); err != nil || out.String() != want {
			t.Errorf("%v, printed\n%swant\n%s", err, &out, want)
		}
	})
}
