package main

import (
	"bytes"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	const want = `alice of acme uploads 60 MB: allowed
alice of acme uploads 60 MB: refused by "megabytes per tenant"
alice of acme uploads 10 MB: allowed
alice of acme uploads 10 MB: allowed
alice of acme uploads 10 MB: refused by "requests per user"
bob of acme uploads 10 MB: allowed
left of acme: 1 requests, 10 MB
`
	synctest.Test(t, func(t *testing.T) { // whose clock is far from the end of a window
		var out bytes.Buffer
		if err := run(&out); err != nil || out.String() != want {
			t.Errorf("%v, printed\n%swant\n%s", err, &out, want)
		}
	})
}
