package redisrate

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/remote"
)

// eventually polls until ok, for at most 10 s.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// Two processes share a limit, forget a key together, and go on without Redis.
func TestRealFleet(t *testing.T) {
	server := redistest.Start(t)
	a, b := NewLimiter(client(t, server.Addr())), NewLimiter(client(t, server.Addr()))
	defer a.Close()
	defer b.Close()
	l := PerHour(100) // one in 36 s: none comes back while the test runs
	if n := most(t, a, "k", l, 60).Allowed; n != 60 {
		t.Fatalf("%d", n)
	}
	admitted := 60
	eventually(t, "the other refuses", func() bool {
		n := most(t, b, "k", l, 1).Allowed
		admitted += n
		return n == 0
	})
	if admitted < 100 || admitted > 200 {
		t.Errorf("%d of 100", admitted)
	}
	if err := a.Reset(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other admits after a reset", func() bool { return most(t, b, "k", l, 1).Allowed == 1 })

	server.Kill()
	for i := range 100 {
		if _, err := a.Allow(t.Context(), "without redis", l); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	eventually(t, "refused without Redis", func() bool { return take(t, a, "without redis", l, 1).Allowed == 0 })
	if err := a.Reset(t.Context(), "k"); err == nil {
		t.Error("a reset without Redis has no error")
	}
}

// What one process has admitted when it is closed, the next one knows.
func TestRealClose(t *testing.T) {
	server := redistest.Start(t)
	first, l := NewLimiter(client(t, server.Addr())), PerHour(100)
	for range 40 {
		take(t, first, "k", l, 1)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	asks, err := remote.New(client(t, server.Addr()), remote.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n := take(t, From(asks), "k", l, 0).Remaining; n != 60 {
		t.Errorf("%d remain, want 60", n)
	}
}

// Where Redis decides, processes together admit what one does.
func TestRealRemote(t *testing.T) {
	server := redistest.Start(t)
	var nodes []*Limiter
	for range 3 {
		lim, err := remote.New(client(t, server.Addr()), remote.Options{})
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, From(lim))
	}
	admitted := 0
	for i := range 150 {
		admitted += take(t, nodes[i%3], "k", PerHour(100), 1).Allowed
	}
	if admitted != 100 {
		t.Errorf("%d of 100", admitted)
	}
	if err := nodes[1].Reset(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if n := take(t, nodes[2], "k", PerHour(100), 100).Allowed; n != 100 {
		t.Errorf("%d after a reset", n)
	}
	server.Kill()
	if res, err := nodes[0].Allow(t.Context(), "k", PerHour(100)); err == nil || res != nil {
		t.Errorf("without Redis: %+v, %v", res, err)
	}
}
