package hybrid_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// Servers that answer, but not with what was asked for.

// scripts returns how many scripts Redis has been asked to run, whether it did
// or not.
func scriptCalls(t testing.TB, rdb *redis.Client) (calls int) {
	t.Helper()
	info, err := rdb.Info(bg, "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		var n, rejected int
		name, stats, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "cmdstat_evalsha" && name != "cmdstat_eval" {
			continue
		}
		for f := range strings.SplitSeq(stats, ",") {
			_, _ = fmt.Sscanf(f, "calls=%d", &n)
			_, _ = fmt.Sscanf(f, "rejected_calls=%d", &rejected)
		}
		calls += n + rejected
	}
	return calls
}

func config(t testing.TB, rdb *redis.Client, name, value string) {
	t.Helper()
	if err := rdb.ConfigSet(bg, name, value).Err(); err != nil {
		t.Fatal(err)
	}
}

// Redis refuses to write, because it is out of memory or of replicas.
//
// Faults 23, 24: degraded with the reason, one warning, no storm of retries;
// what was admitted is booked once Redis writes again.
func TestRealRefusesToWrite(t *testing.T) {
	t.Parallel()
	for reason, c := range map[string]struct{ setting, bad, good string }{
		"oom":        {"maxmemory", "1", "0"},
		"noreplicas": {"min-replicas-to-write", "1", "0"},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			admin := dial(t, srv.Addr())
			var log logbook
			l := realNode(t, srv.Addr(), hybrid.Options{Shards: 1, MaxBackoff: 200 * time.Millisecond, HeartbeatInterval: 100 * time.Millisecond, Logger: slog.New(&log)})
			var all books
			all.take(l, "k", 4)
			flush(t, l)
			config(t, admin, c.setting, c.bad)
			eventually(t, "degraded: "+reason, func() bool {
				s := l.State()
				return s.Mode == hybrid.Degraded && s.Reason == reason
			})
			before, failed := scriptCalls(t, admin), l.Stats().Failures
			const checks = 2000
			for i := range checks {
				all.take(l, fmt.Sprint("key", i), 1)
				<-time.After(time.Millisecond)
			}
			eventually(t, "more probes have failed", func() bool { return l.Stats().Failures >= failed+5 })
			// A probe is two scripts, one of them for the only shard, and with
			// these settings there are some ten a second.
			probes := int(l.Stats().Failures-failed) + 1
			if got := scriptCalls(t, admin) - before; got > 3*probes || got > checks/10 {
				t.Errorf("%d scripts for %d probes, while %d checks were made", got, probes, checks)
			}
			if warn := log.alarms(); warn != 1 || !strings.Contains(log.text(), reason) {
				t.Errorf("log:\n%s", log.text())
			}
			config(t, admin, c.setting, c.good)
			all.settlesIn(t, l, srv.Addr(), 1)
		})
	}
}

// The server that is in use becomes the replica of another one, which takes
// its place behind the same address: connections that are open go on leading
// to the old one, which reads and does not write.
//
// Fault 22: degraded; the connection is given up and the new master found;
// everything admitted is there.
func TestRealReadOnly(t *testing.T) {
	t.Parallel()
	old, p := proxied(t, "--repl-diskless-sync-delay", "0")
	promoted := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	a, b := dial(t, old.Addr()), dial(t, promoted.Addr())
	replicaOf := func(rdb *redis.Client, host, port string) {
		t.Helper()
		if err := rdb.Do(bg, "REPLICAOF", host, port).Err(); err != nil {
			t.Fatal(err)
		}
	}
	follow := func(rdb *redis.Client, addr string) {
		t.Helper()
		host, port, _ := strings.Cut(addr, ":")
		replicaOf(rdb, host, port)
	}
	var log logbook
	l := realNode(t, p.Addr(), hybrid.Options{MaxBackoff: 200 * time.Millisecond, Logger: slog.New(&log)})
	var all books
	take := func() {
		for i := range 20 {
			all.take(l, fmt.Sprint("key", i), 1)
		}
	}
	take()
	flush(t, l)
	follow(b, old.Addr())
	eventually(t, "replicated", func() bool {
		return strings.Contains(b.Info(bg, "replication").Val(), "master_link_status:up") && b.DBSize(bg).Val() == a.DBSize(bg).Val()
	})
	replicaOf(b, "NO", "ONE")
	follow(a, promoted.Addr())
	take()
	eventually(t, "degraded: readonly", func() bool {
		s := l.State()
		return s.Mode == hybrid.Degraded && s.Reason == "readonly"
	})
	take()
	p.SetTarget(promoted.Addr())
	eventually(t, "synced with the new master", func() bool {
		return l.State().Mode == hybrid.Synced && l.Stats().PendingUnits == 0
	})
	conserved(t, l, true)
	all.match(t, b)
	// Each connection in the pool may have to find out for itself. A line has the reason with which
	// its outage began: while a server becomes a replica it may not answer in time.
	// If the outage was brief, its line is written at the end.
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	text := log.text()
	if warn, _ := log.count(slog.LevelWarn); warn < 1 || warn > 3 || !strings.Contains(text, "readonly") && !strings.Contains(text, "timeout") {
		t.Errorf("log:\n%s", text)
	}
}

// What an operator has done wrong: a password that appears or is wrong, rights
// that are missing.
//
// Fault 25: degraded with that reason, one line that says so however often it
// is tried again, and everything is reported once it is mended.
func TestRealMisconfigured(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ breaks, mends, reason string }{
		"no password":    {"CONFIG SET requirepass secret", "CONFIG SET requirepass ", "noauth"},
		"wrong password": {"ACL SETUSER default on >secret ~* &* +@all", "ACL SETUSER default on nopass ~* &* +@all", "wrongpass"},
		"command":        {"ACL SETUSER default -evalsha", "ACL SETUSER default +@all", "noperm"},
		"keys":           {"ACL SETUSER default resetkeys ~elsewhere*", "ACL SETUSER default ~*", "noperm"},
		"inner command":  {"ACL SETUSER default -set", "ACL SETUSER default +@all", "noperm"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			run := commander(t, srv.Addr())
			co := clientOptions(srv.Addr())
			if c.reason == "wrongpass" {
				co.Username, co.Password = "default", "guess"
			}
			var log logbook
			l := newLimiter(t, client(t, co), hybrid.Options{MaxBackoff: 100 * time.Millisecond, Logger: slog.New(&log)})
			eventually(t, "synced", func() bool { return l.State().Mode == hybrid.Synced })
			var all books
			all.take(l, "k", 3)
			flush(t, l)
			run(strings.Split(c.breaks, " ")...)
			run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			all.take(l, "k", 4)
			eventually(t, "degraded: "+c.reason, func() bool {
				s := l.State()
				return s.Mode == hybrid.Degraded && s.Reason == c.reason
			})
			failed := l.Stats().Failures
			eventually(t, "tried again and again", func() bool { return l.Stats().Failures >= failed+10 })
			// A connection that was killed may be what degrades; the reason
			// that needs an operator is delivered all the same, once.
			warn := log.alarms()
			if said := strings.Count(log.text(), "reason="+c.reason+" "); said != 1 || warn > 2 {
				t.Errorf("%q was said %d times, with %d warnings:\n%s", c.reason, said, warn, log.text())
			}
			run(strings.Split(c.mends, " ")...)
			all.settles(t, l, srv.Addr())
		})
	}
}

// commander returns a function that runs commands on a connection that stays,
// with the rights that it began with.
func commander(t *testing.T, addr string) func(words ...string) {
	t.Helper()
	if err := dial(t, addr).Do(bg, "ACL", "SETUSER", "admin", "on", "nopass", "~*", "&*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	o := clientOptions(addr)
	o.Username, o.Password = "admin", "x"
	rdb := client(t, o)
	return func(words ...string) {
		t.Helper()
		args := make([]any, len(words))
		for i, w := range words {
			args[i] = w
		}
		if err := rdb.Do(bg, args...).Err(); err != nil {
			t.Fatalf("%v: %v", words, err)
		}
	}
}

// Somebody else's script does not end until an operator kills it.
//
// Fault 26: degraded with the reason, and booked once Redis is free again.
func TestRealBusyScript(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--lua-time-limit", "50")
	admin := dial(t, srv.Addr())
	l := realNode(t, srv.Addr(), hybrid.Options{MaxBackoff: 200 * time.Millisecond})
	var all books
	all.take(l, "k", 3)
	flush(t, l)
	o := clientOptions(srv.Addr())
	o.ReadTimeout, o.ContextTimeoutEnabled = -1, false
	endless := client(t, o)
	ended := make(chan error, 1)
	go func() { ended <- endless.Eval(bg, "while true do end", nil).Err() }()
	for i := 0; ; i++ {
		all.take(l, fmt.Sprint("key", i%50), 1)
		if s := l.State(); s.Mode == hybrid.Degraded && s.Reason == "busy" {
			break
		}
		if i > 5000 {
			t.Fatalf("after 5,000 checks: %v", l.State())
		}
		<-time.After(2 * time.Millisecond)
	}
	if err := admin.ScriptKill(bg).Err(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the endless script ended by itself")
	}
	all.settles(t, l, srv.Addr())
}
