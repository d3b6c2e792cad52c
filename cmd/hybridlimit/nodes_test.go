package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Nodes are shown by what they say about themselves, and those of several programs are said to be so.
// Whoever looks under a prefix that no node uses hears which ones are in use.
func TestNodesThatSayWhoTheyAre(t *testing.T) {
	t.Parallel()
	s, flags := real(t)
	lim := limit.Must(hybrid.New(client(t, s), hybrid.Options{NodeName: "web-1", HeartbeatInterval: 20 * time.Millisecond, ExpectedNodes: 8}))
	t.Cleanup(func() { lim.Shutdown(t.Context()) })
	store, err := redisstore.NewStore(client(t, s), redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for id, a := range map[string]*redisstore.About{"old": nil, "new": {Name: "jobs-1\x1b[2J", Program: "jobs", Version: "v9.0.0", Mode: "later", Fallback: "fail-open", Share: 1}} {
		if _, err := store.Beat(t.Context(), id, time.Minute, nil, redisstore.BeatOptions{About: a}); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the node to say that it is synchronised", func() bool {
		nodes, err := inside.Of(lim).Nodes(t.Context())
		for _, n := range nodes {
			if n.ID == inside.Of(lim).ID() && n.Mode == hybrid.Synced.String() {
				return true
			}
		}
		return err != nil
	})
	cli(t, with(flags, "nodes")...).want(t, exitOK).says(t, "NODE VERSION MODE FOR LAG OUTAGE GONE IN", "web-1 (devel) synced", " 12.5% ", "jobs-1", "v9.0.0", "fail-open",
		"old", "3 nodes of version 1", "Several programs use this prefix", `"hybridlimit.test", "jobs"`)
	for _, command := range [][]string{{"nodes"}, {"peek", "k", "--rule=api=sliding-window,5/1m"}} {
		cli(t, append(with(flags, command...), "--prefix=hi")...).want(t, exitOK).says(t, `no node uses the prefix "hi" here, but there are nodes with "hl": see --prefix`)
	}
}

// introduce enters nodes that have names: of a host, a program and a process.
func introduce(t *testing.T, s *redistest.Server, names ...string) {
	t.Helper()
	store, err := redisstore.NewStore(client(t, s), redisstore.Options{CommandTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		_, program, _ := strings.Cut(name, "/")
		program, _, _ = strings.Cut(program, "[")
		about := &redisstore.About{Name: name, Program: program, Version: "v0.9.0", Mode: "synced", Lag: 1000, Fallback: "fair-share", Share: 0.25,
			Since: time.Now().Add(-191*time.Minute - 20*time.Second).UnixMilli()}
		if _, err := store.Beat(t.Context(), fmt.Sprint("node-", i+2), 24*time.Hour, nil, redisstore.BeatOptions{About: about}); err != nil {
			t.Fatal(err)
		}
	}
}
