package redisstore

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// servers asks a store of 16 shards on a client where they are, and lists the addresses.
func servers(t *testing.T, rdb redis.UniversalClient) (all, distinct []string) {
	t.Helper()
	s, err := NewStore(rdb, Options{Shards: 16})
	if err != nil {
		t.Fatal(err)
	}
	all = s.Servers(context.Background())
	if len(all) != 16 {
		t.Fatalf("%d addresses for 16 shards", len(all))
	}
	distinct = slices.Clone(all)
	slices.Sort(distinct)
	return all, slices.Compact(distinct)
}

// hidden is a client of which nothing shows what it is.
type hidden struct{ redis.UniversalClient }

// panicky is one that panics when it is asked.
type panicky struct{ redis.UniversalClient }

func (panicky) MasterForKey(context.Context, string) (*redis.Client, error) { panic("no") }

// lostMap does not find out.
type lostMap struct{ redis.UniversalClient }

func (lostMap) MasterForKey(context.Context, string) (*redis.Client, error) {
	return nil, errors.New("no master")
}

// embedding is a client with something around it.
type embedding struct{ *redis.Client }

func TestServersOfOtherClients(t *testing.T) {
	a, b := miniredis.RunT(t), miniredis.RunT(t)
	single := redis.NewClient(&redis.Options{Addr: a.Addr()})
	t.Cleanup(func() { _ = single.Close() })
	for what, rdb := range map[string]redis.UniversalClient{"single": single, "embedding": embedding{single}} {
		if _, got := servers(t, rdb); !slices.Equal(got, []string{a.Addr()}) {
			t.Errorf("%s: %q, want that of %s", what, got, a.Addr())
		}
	}
	for what, rdb := range map[string]redis.UniversalClient{"hidden": hidden{single}, "panicky": panicky{single}, "lost": lostMap{single}} {
		if _, got := servers(t, rdb); !slices.Equal(got, []string{""}) {
			t.Errorf("%s: %q, want to know none", what, got)
		}
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": a.Addr(), "b": b.Addr()}})
	t.Cleanup(func() { _ = ring.Close() })
	all, got := servers(t, ring)
	want := []string{a.Addr(), b.Addr()}
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("ring: %q, want %q", got, want)
	}
	keys := Keyspace{prefix: "hl", shards: 16}
	for i, addr := range all {
		if err := ring.Set(context.Background(), keys.SeqKey(i, "node"), 1, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if on := map[string]*miniredis.Miniredis{a.Addr(): a, b.Addr(): b}[addr]; !on.Exists(keys.SeqKey(i, "node")) {
			t.Errorf("shard %d is not on %s", i, addr)
		}
	}
}
