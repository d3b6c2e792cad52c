package main

import (
	"bytes"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	goleak.VerifyTestMain(m)
}

func TestRun(t *testing.T) {
	const want = `the first node admits 6
the second node admits 4
Redis is away; of another customer each admits its share: 5 and 5
Redis is back, and has been told; left: 0
`
	var out bytes.Buffer
	if err := run("", &out); err != nil || out.String() != want {
		t.Errorf("%v, printed\n%swant\n%s", err, &out, want)
	}
}
