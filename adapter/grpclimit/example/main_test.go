package main

import (
	"bytes"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	const want = `call 0 SERVING
call 1 SERVING
call 2 SERVING
call 3 refused by the server: rate limit exceeded: policy "per peer", again in 1h0m0s
call 4 refused by the client, not sent: rate limit exceeded: policy "upstream", again in 1h0m0s
`
	var out bytes.Buffer
	if err := run(&out); err != nil || out.String() != want {
		t.Errorf("%v, printed\n%swant\n%s", err, &out, want)
	}
}
