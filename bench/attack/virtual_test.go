package main

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/bench/internal/bubble"
)

var (
	rowFlag   = flag.String("attack.row", "", "play the row of this name in TestVirtual")
	scaleFlag = flag.Float64("attack.scale", 1, "its -scale")
	seedFlag  = flag.Uint64("attack.seed", 1, "its -seed")
	fileFlag  = flag.String("attack.file", "", "write to this `file` what has come of it")
)

// lag is how long a message to the embedded Redis takes.
const lag = time.Millisecond

// wall shows the wall-clock time, in a bubble that of the bubble.
type wall struct{}

func (wall) Now() time.Duration { return time.Duration(time.Now().UnixNano()) }

// play plays a row around an embedded Redis, whose time is that of a bubble and of all nodes.
func play(t *testing.T, o options, s scenario) (m *measurement) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		keys, scale := o.room(s)
		server := bubble.Start(t)
		// With each call miniredis would look at all keys for those that have expired. A state is
		// judged by the times in it, so it makes no difference that it is still there.
		server.ClockTTL(false)
		c := wall{}
		client := func() *redis.Client { return bubble.Client(t, server, lag) }
		f, err := newFleet(s, c, keys, o.rand(s, "nodes"), client)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.await(); err != nil {
			t.Fatal(err)
		}
		from := c.Now()
		pass := func(at time.Duration) { time.Sleep(from + at - c.Now()) }
		if m, err = o.play(t.Context(), s, stage{c, pass, f}, scale); err != nil {
			t.Fatal(err)
		}
	})
	return m
}

// TestVirtual plays the row that the command asks for.
func TestVirtual(t *testing.T) {
	if *rowFlag == "" {
		t.Skip("is for the command: -attack.row is empty")
	}
	i := slices.IndexFunc(rows(), func(s scenario) bool { return s.name == *rowFlag })
	if i < 0 {
		t.Fatalf("no row %q", *rowFlag)
	}
	m := play(t, options{*scaleFlag, *seedFlag}, rows()[i])
	text, err := json.Marshal(m.outcome)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(*fileFlag, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
