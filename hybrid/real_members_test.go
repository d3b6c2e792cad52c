package hybrid_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// A process and its copy (a virtual machine that was cloned, or restored while the
// original lives) go by one name and count the same numbers. Whatever they admit is
// booked, whichever reports first; they get to know of each other; and each leaves
// under its own name.
//
// Fault 77: two limiters under one name, and nothing vanishes.
func TestRealCopyOfAProcess(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := dial(t, srv.Addr())
	var seen happenings
	o := quick
	o.OnEvent = seen.add
	a := realNode(t, srv.Addr(), o)
	var all books
	for i := range 20 {
		all.take(a, fmt.Sprint("key", i), 1)
	}
	flush(t, a)
	name := a.ID()
	b, err := hybrid.NewCopy(dial(t, srv.Addr()), o, name, numbersOf(t, admin, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Shutdown(bg) })
	nodes := []*hybrid.Limiter{a, b}
	for range 100 {
		for i, l := range nodes {
			for k := range 20 {
				all.take(l, fmt.Sprint("key", k), int64(1+i))
			}
		}
		<-time.After(time.Millisecond)
	}
	for _, l := range nodes {
		flush(t, l)
		conserved(t, l, true)
	}
	all.match(t, admin)
	if a.ID() == b.ID() || a.Figures().Renames+b.Figures().Renames == 0 {
		t.Errorf("names %q and %q, renamed %d and %d times", a.ID(), b.ID(), a.Figures().Renames, b.Figures().Renames)
	}
	eventually(t, "they count each other", func() bool { return a.State().Nodes == 2 && b.State().Nodes == 2 })
	list := seen.of(hybrid.EventRenamed)
	if len(list) == 0 || !strings.Contains(list[0].Reason, name) {
		t.Errorf("told of %v", list)
	}
	for _, l := range nodes {
		wantMode(t, l, hybrid.Synced)
		if live := admin.ZRange(bg, "hl:1:{0}:nodes:1", 0, -1).Val(); !slices.Contains(live, l.ID()) {
			t.Errorf("%q is not among the live nodes %q", l.ID(), live)
		}
		id := l.ID()
		if err := l.Shutdown(bg); err != nil {
			t.Error(err)
		}
		if live := admin.ZRange(bg, "hl:1:{0}:nodes:1", 0, -1).Val(); slices.Contains(live, id) {
			t.Errorf("%q has left, and is still among the live nodes", id)
		}
	}
}

// numbersOf returns the latest number of a node in each shard, by its ledgers.
func numbersOf(t *testing.T, rdb *redis.Client, name string) map[int]int64 {
	t.Helper()
	out := map[int]int64{}
	for _, key := range rdb.Keys(bg, "hl:1:{*}:node:"+name).Val() {
		var shard int
		var seq int64
		if _, err := fmt.Sscanf(key, "hl:1:{%d}", &shard); err != nil {
			t.Fatalf("%q: %v", key, err)
		}
		if _, err := fmt.Sscan(rdb.Get(bg, key).Val(), &seq); err != nil {
			t.Fatalf("%q: %v", key, err)
		}
		out[shard] = seq
	}
	return out
}
