package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

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
