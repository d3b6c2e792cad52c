package remote_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// The constants are written out, so that godoc shows what they are.
func TestConstantsAreThoseOfTheStore(t *testing.T) {
	for name, c := range map[string]struct{ got, want any }{
		"DefaultKeyPrefix":      {remote.DefaultKeyPrefix, redisstore.DefaultKeyPrefix},
		"DefaultShards":         {remote.DefaultShards, redisstore.DefaultShards},
		"DefaultCommandTimeout": {remote.DefaultCommandTimeout, redisstore.DefaultCommandTimeout},
		"ClassUnavailable":      {remote.ClassUnavailable, remote.Class(redisstore.ClassUnavailable)},
		"ClassMisconfigured":    {remote.ClassMisconfigured, remote.Class(redisstore.ClassMisconfigured)},
		"ClassKey":              {remote.ClassKey, remote.Class(redisstore.ClassKey)},
	} {
		if c.got != c.want {
			t.Errorf("%s is %v, the store's %v", name, c.got, c.want)
		}
	}
}

func newLimiter(t *testing.T, o remote.Options) (*remote.Limiter, *miniredis.Miniredis) {
	t.Helper()
	server := miniredis.RunT(t)
	server.SetTime(time.Unix(1_760_000_000, 0))
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	o.CommandTimeout = 30 * time.Second
	l, err := remote.New(rdb, o)
	if err != nil {
		t.Fatal(err)
	}
	return l, server
}

func TestEveryCallCountsInTheSameKey(t *testing.T) {
	l, server := newLimiter(t, remote.Options{KeyPrefix: "mine", Shards: 4})
	ctx, rule := context.Background(), limit.Must(limit.Funnel("f", 10, 1, time.Minute))
	remaining := func(want int64) {
		t.Helper()
		if res, err := l.Peek(ctx, "k", rule); err != nil || res.Remaining != want || res.Source != limit.SourceRemote {
			t.Fatalf("%+v, %v, want %d remaining", res, err, want)
		}
	}
	if res, err := l.Take(ctx, "k", rule, 2); err != nil || !res.Allowed {
		t.Fatal(res, err)
	}
	remaining(8)
	if n, _, err := l.TakeAtMost(ctx, "k", rule, 3); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	remaining(5)
	if v, err := l.TakeAll(ctx, limit.Check{Key: "k", Rule: rule, N: 4}); err != nil || !v.Allowed {
		t.Fatal(v, err)
	}
	remaining(1)
	if err := l.Wait(ctx, "k", rule); err != nil {
		t.Fatal(err)
	}
	remaining(0)
	if n, err := l.Refund(ctx, "k", rule, 2); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	remaining(2)
	if err := l.Reset(ctx, "k", rule); err != nil {
		t.Fatal(err)
	}
	remaining(10)
	if err := l.Set(ctx, "k", rule, 7); err != nil {
		t.Fatal(err)
	}
	remaining(3)
	if l.Shard("k") == l.Shard("l") && l.Shard("k") == l.Shard("m") && l.Shard("k") == l.Shard("n") {
		t.Error("all keys are in one shard, of four")
	}
	for _, key := range server.Keys() {
		if !strings.HasPrefix(key, "mine:") {
			t.Errorf("key %q without the prefix", key)
		}
	}
}

func TestReservationIsCanceled(t *testing.T) {
	l, _ := newLimiter(t, remote.Options{})
	ctx, rule := context.Background(), limit.Must(limit.Funnel("f", 1, 1, time.Minute))
	first, err := l.Reserve(ctx, "k", rule)
	if err != nil || !first.OK() || first.Delay() != 0 {
		t.Fatal(first, err)
	}
	second, err := l.Reserve(ctx, "k", rule)
	if err != nil || !second.OK() || second.Delay() != time.Minute {
		t.Fatal(second.Delay(), err)
	}
	if err := second.Cancel(ctx); err != nil {
		t.Fatal(err)
	}
	if third, err := l.Reserve(ctx, "k", rule); err != nil || third.Delay() != time.Minute {
		t.Errorf("%v, %v: what was canceled is still in the queue", third.Delay(), err)
	}
	for _, none := range []*remote.Reservation{nil, {}} {
		if none.OK() || none.Delay() != limit.Never || none.Cancel(ctx) != nil {
			t.Errorf("%v holds units", none)
		}
	}
	if r, err := l.Reserve(ctx, "k", nil); r != nil || !errors.Is(err, limit.ErrNilRule) {
		t.Errorf("%v, %v", r, err)
	}
}

func TestErrors(t *testing.T) {
	if l, err := remote.New(nil, remote.Options{Shards: -1, KeyPrefix: "{", CommandTimeout: -1}); l != nil || err == nil {
		t.Fatal(l, err)
	} else {
		for _, part := range []string{"client is nil", "Shards", "KeyPrefix", "CommandTimeout"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%v does not mention %s", err, part)
			}
		}
	}
	for _, zero := range []redis.UniversalClient{&redis.Client{}, &redis.ClusterClient{}, &redis.Ring{}} {
		if l, err := remote.New(zero, remote.Options{}); l != nil || err == nil || !strings.Contains(err.Error(), "zero") {
			t.Errorf("%T: %v", zero, err)
		}
	}
	l, server := newLimiter(t, remote.Options{})
	ctx, rule := context.Background(), limit.Must(limit.Funnel("f", 1, 1, time.Minute))
	if _, err := l.Take(ctx, "k", rule, 1); err != nil {
		t.Fatal(err)
	}
	name := server.Keys()[0]
	if err := server.Set(name, "rubbish"); err != nil {
		t.Fatal(err)
	}
	_, err := l.Take(ctx, "k", rule, 1)
	var broken *limit.KeyError
	if !errors.As(err, &broken) || broken.Key != name || !strings.HasPrefix(err.Error(), "remote: ") {
		t.Errorf("%v, want a KeyError on %q", err, name)
	}
	if class, reason := remote.Classify(err); class != remote.ClassKey || class.String() != "key" || reason != "garbage" {
		t.Errorf("%v %q", class, reason)
	}
	server.Close()
	_, err = l.Take(ctx, "k", rule, 1)
	if class, reason := remote.Classify(err); class != remote.ClassUnavailable || reason == "" {
		t.Errorf("%v %q: %v", class, reason, err)
	}
	if class, reason := remote.Classify(nil); class != 0 || reason != "" {
		t.Errorf("%v %q", class, reason)
	}
}

func TestBoundRepliesBounds(t *testing.T) {
	server := miniredis.RunT(t)
	if err := server.Set("large", strings.Repeat("x", 10_000)); err != nil {
		t.Fatal(err)
	}
	o := &redis.Options{Addr: server.Addr(), MaxRetries: -1}
	dial := redis.NewDialer(o)
	o.Dialer = remote.BoundReplies(func(ctx context.Context, network, addr string) (net.Conn, error) { return dial(ctx, network, addr) }, 5_000)
	rdb := redis.NewClient(o)
	defer rdb.Close()
	if err := rdb.Get(context.Background(), "large").Err(); !errors.Is(err, remote.ErrBadReply) {
		t.Errorf("%v, want ErrBadReply", err)
	}
}
