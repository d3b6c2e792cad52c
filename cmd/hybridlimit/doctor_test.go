package main

import (
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/doctor"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// healthy are the options of a server that lacks nothing.
var healthy = []string{"--appendonly", "yes"}

// patient are flags under which no machine is too slow.
var patient = []string{"--slow-trip=1h", "--slow-command=1h"}

// examine runs doctor and returns the ids of what it finds, each once.
func examine(t *testing.T, flags ...string) (ids []string, report doctor.Report, code int) {
	t.Helper()
	o := cli(t, append([]string{"doctor", "--json", "--timeout=1m"}, flags...)...)
	if o.code != exitOK && o.code != exitFound {
		t.Fatalf("exit code %d: %s", o.code, o.err)
	}
	o.read(t, &report)
	for _, f := range report.Findings {
		ids = append(ids, f.ID)
		if f.What == "" || f.Why == "" || len(f.Fix) == 0 || f.Server == "" {
			t.Errorf("%s does not say all: %+v", f.ID, f)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), report, o.code
}

func at(s *redistest.Server) string { return "--redis=redis://" + s.Addr() }

// It finds nothing on a healthy server. It looks, and changes nothing: no key, no setting.
func TestDoctorFindsNothing(t *testing.T) {
	s := redistest.Start(t, healthy...)
	before, err := s.Do("CONFIG", "GET", "*")
	if err != nil {
		t.Fatal(err)
	}
	ids, report, code := examine(t, append(patient, at(s))...)
	if len(ids) != 0 || len(report.Unknown) != 0 || code != exitOK || len(report.Servers) != 1 || report.Servers[0].Role != "master" {
		t.Errorf("%v, %+v, exit code %d", ids, report, code)
	}
	cli(t, append([]string{"doctor", "--timeout=1m", at(s)}, patient...)...).want(t, exitOK).golden(t, "doctor-healthy", s)
	after, err := s.Do("CONFIG", "GET", "*")
	if err != nil || !reflect.DeepEqual(before, after) {
		t.Errorf("a setting has changed, or %v", err)
	}
	if n, err := s.Do("DBSIZE"); err != nil || n != int64(0) {
		t.Errorf("%v keys, %v", n, err)
	}
}

// It names the server by what INFO says, and says whether that was tested.
//
// Fault 120: doctor says what is known of a version.
func TestDoctorNamesTheServer(t *testing.T) {
	s := redistest.Start(t, healthy...)
	info, err := s.Info("server")
	if err != nil {
		t.Fatal(err)
	}
	product, version := "Redis", info["redis_version"]
	if v := info["valkey_version"]; v != "" {
		product, version = "Valkey", v
	}
	_, report, _ := examine(t, append(patient, at(s))...)
	if len(report.Servers) != 1 {
		t.Fatalf("%+v", report)
	}
	got := report.Servers[0]
	if got.Product != product || got.Version != version || !strings.Contains(got.Known, " tested.") || got.Tested == strings.Contains(got.Known, "not tested") {
		t.Errorf("%+v, want %s %s", got, product, version)
	}
	cli(t, append([]string{"doctor", "--timeout=1m", at(s)}, patient...)...).says(t, fmt.Sprintf(": %s %s, master ", product, version), got.Known)
}

// What it prints if there is something to say.
func TestDoctorPrints(t *testing.T) {
	s := redistest.Start(t, healthy...)
	do(t, s, "CONFIG", "SET", "maxmemory", "1gb")
	do(t, s, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	do(t, s, "CONFIG", "SET", "appendonly", "no")
	do(t, s, "ACL", "SETUSER", "default", "-zadd", "-zremrangebyscore")
	cli(t, append([]string{"doctor", "--timeout=1m", at(s)}, patient...)...).want(t, exitFound).golden(t, "doctor", s)
}

// Each of these faults, and nothing else, is found on a server that is healthy otherwise. Settings that
// doctor mends are in TestDoctorIsRight, rights in TestDoctorAsTheLimiter.
func TestDoctorFindsEachFault(t *testing.T) {
	words := func(words ...string) func(*testing.T, *redistest.Server) []string {
		return func(t *testing.T, s *redistest.Server) []string {
			do(t, s, words...)
			return nil
		}
	}
	for name, c := range map[string]struct {
		id    string
		sev   doctor.Severity
		fix   string // is part of what it says to do
		args  []string
		spoil func(*testing.T, *redistest.Server) []string // and returns flags
	}{
		"fsync always": {"fsync", doctor.Warning, "CONFIG SET appendfsync everysec", nil, words("CONFIG", "SET", "appendfsync", "always")},
		"a replica":    {"replica", doctor.Error, "master", nil, words("REPLICAOF", "127.0.0.1", "1")},
		"renamed":      {"command", doctor.Error, "redis.conf: remove the line that begins with: rename-command PEXPIRE", []string{"--rename-command", "PEXPIRE", "hidden"}, nil},
		"layouts":      {"layouts", doctor.Warning, "same Shards", nil, func(t *testing.T, s *redistest.Server) []string { beat(t, s, 0, 1); beat(t, s, 0, 64); return nil }},
		"database":     {"database", doctor.Warning, "/3", nil, func(t *testing.T, s *redistest.Server) []string { beat(t, s, 3, 1); return nil }},
		"applications": {"applications", doctor.Warning, "KeyPrefix", nil, twoApplications},
		"slow command": {"slow-commands", doctor.Warning, "SLOWLOG", []string{"--slowlog-log-slower-than", "0"}, func(*testing.T, *redistest.Server) []string { return []string{"--slow-command=1us"} }},
		"slow network": {"latency", doctor.Warning, "CommandTimeout", nil, func(*testing.T, *redistest.Server) []string { return []string{"--slow-trip=1ns"} }},
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t, append(slices.Clone(healthy), c.args...)...)
			flags := append(slices.Clone(patient), at(s))
			if c.spoil != nil {
				flags = append(flags, c.spoil(t, s)...)
			}
			ids, report, code := examine(t, flags...)
			if !slices.Equal(ids, []string{c.id}) {
				t.Fatalf("found %v, want %s: %+v", ids, c.id, report.Findings)
			}
			f := report.Findings[0]
			if c.sev != "" && f.Severity != c.sev || !strings.Contains(strings.Join(f.Fix, "\n"), c.fix) {
				t.Errorf("%+v, want %s and %q", f, c.sev, c.fix)
			}
			if want := map[bool]int{true: exitOK, false: exitFound}[c.sev == doctor.Note]; code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
			cli(t, append([]string{"doctor", "--timeout=1m"}, flags...)...).want(t, code).says(t, c.id)
		})
	}
}

// What doctor says to change is what mends it.
func TestDoctorIsRight(t *testing.T) {
	s := redistest.Start(t, healthy...)
	for _, setting := range [][2]string{{"maxmemory-policy", "allkeys-random"}, {"appendonly", "no"}, {"timeout", "5"}, {"min-replicas-to-write", "2"}, {"client-output-buffer-limit", "normal 1000 0 0"}, {"lua-time-limit", "1"}} {
		do(t, s, "CONFIG", "SET", setting[0], setting[1])
		if setting[0] == "client-output-buffer-limit" { // or what doctor asks for is too large
			do(t, s, "CONFIG", "SET", setting[0], "normal 500000 0 0")
		}
	}
	do(t, s, "ACL", "SETUSER", "default", "-get", "-zrange", "resetkeys", "~x", "-publish", "-subscribe", "resetchannels")
	ids, report, _ := examine(t, append(patient, at(s))...)
	if len(ids) != 8 {
		t.Fatalf("found %v", ids)
	}
	for _, f := range report.Findings {
		for _, fix := range f.Fix {
			fields := strings.Fields(fix)
			switch {
			case strings.HasPrefix(fix, "CONFIG SET "):
				name, value, _ := strings.Cut(strings.TrimPrefix(fix, "CONFIG SET "), " ")
				do(t, s, "CONFIG", "SET", name, strings.Trim(value, `"`))
			case strings.HasPrefix(fix, "ACL SETUSER "):
				do(t, s, fields...)
			}
		}
	}
	if ids, report, code := examine(t, append(patient, at(s))...); len(ids) != 0 || code != exitOK {
		t.Errorf("still: %+v", report.Findings)
	}
}

// beat has a node say that it is alive.
func beat(t *testing.T, s *redistest.Server, db, shards int) {
	t.Helper()
	rdb := client(t, s)
	if db != 0 {
		o := *rdb.Options()
		o.DB = db
		rdb = redisClient(t, &o)
	}
	st, err := redisstore.NewStore(rdb, redisstore.Options{Shards: shards, CommandTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Beat(t.Context(), fmt.Sprint("node-", shards), 24*time.Hour, nil, redisstore.BeatOptions{}); err != nil {
		t.Fatal(err)
	}
}

// twoApplications count by rules of one name, which mean different things.
func twoApplications(t *testing.T, s *redistest.Server) []string {
	lim := limit.Must(remote.New(client(t, s), remote.Options{CommandTimeout: time.Minute}))
	for _, rule := range []*limit.Rule{limit.Must(limit.TokenBucket("api", 5, time.Hour, 5)), limit.Must(limit.FixedWindow("api", 5, time.Hour))} {
		if _, err := lim.Take(t.Context(), "k", rule, 1); err != nil {
			t.Fatal(err)
		}
	}
	return nil
}

// await waits for something.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestDoctorOfACluster(t *testing.T) {
	k := redistest.StartCluster(t, healthy...)
	url := "--redis=redis://" + k.Addrs()[0]
	ids, report, code := examine(t, append(patient, url, "--cluster")...)
	if len(ids) != 0 || len(report.Servers) != 3 || code != exitOK {
		t.Errorf("a healthy one: %v, %+v", ids, report)
	}
	if ids, report, _ := examine(t, append(patient, url)...); !slices.Equal(ids, []string{"cluster-client"}) {
		t.Errorf("by the client of a single server: %v, %+v", ids, report)
	}
	for _, addr := range k.Addrs() {
		host, port, _ := net.SplitHostPort(addr)
		rdb := redisClient(t, optionsOf(net.JoinHostPort(host, port)))
		if err := rdb.ConfigSet(t.Context(), "cluster-require-full-coverage", "yes").Err(); err != nil {
			t.Fatal(err)
		}
	}
	ids, report, code = examine(t, append(patient, url, "--cluster")...)
	if !slices.Equal(ids, []string{"full-coverage"}) || len(report.Findings) != 3 || code != exitFound {
		t.Errorf("full coverage: %v, %+v", ids, report)
	}
}

// A managed Redis forbids a lot: then doctor says what it cannot tell, and that is no
// finding.
func TestDoctorCannotTell(t *testing.T) {
	s := redistest.Start(t, append(slices.Clone(healthy),
		"--rename-command", "CONFIG", "", "--rename-command", "SLOWLOG", "", "--rename-command", "LATENCY", "", "--rename-command", "ACL", "")...)
	ids, report, code := examine(t, append(patient, at(s))...)
	if len(ids) != 0 || code != exitOK || len(report.Unknown) == 0 {
		t.Errorf("%v, %+v", ids, report)
	}
	cli(t, append([]string{"doctor", "--timeout=1m", at(s)}, patient...)...).want(t, exitOK).says(t, "cannot tell", "output-buffer", "unknown command")
}

// The user whom docs/redis.md describes may do all that is needed, and no more than that.
func TestDoctorAsTheLimiter(t *testing.T) {
	s := redistest.Start(t, healthy...)
	do(t, s, append([]string{"ACL", "SETUSER", "limiter", "on", ">password", "+scan", "+dbsize"}, documentedRights(t)...)...)
	url := "--redis=redis://limiter:password@" + s.Addr()
	ids, report, code := examine(t, append(patient, url)...)
	if len(ids) != 0 || code != exitOK || len(report.Unknown) == 0 {
		t.Errorf("%v, %+v", ids, report)
	}
	for _, right := range documentedRights(t)[1:] {
		without, id := "-"+right[1:], "permission"
		switch right {
		case "+publish", "+subscribe":
			id = "notices"
		case "&hl:*":
			without, id = "resetchannels", "notices"
		}
		do(t, s, "ACL", "SETUSER", "limiter", without)
		ids, report, _ := examine(t, append(patient, url)...)
		if !slices.Equal(ids, []string{id}) || !slices.Contains(strings.Fields(report.Findings[0].Fix[0]), right) || !strings.Contains(report.Findings[0].Fix[0], "limiter") {
			t.Errorf("without %s: %v, %+v", right, ids, report.Findings)
		}
		do(t, s, "ACL", "SETUSER", "limiter", right)
	}
	o := cli(t, "doctor", "--timeout=1m", "--redis=redis://limiter:wrong@"+s.Addr()).want(t, exitRedis).says(t, "password is wrong")
	if strings.Contains(o.err, ":wrong") {
		t.Error("the password is shown")
	}
}

// A user with a password does not close a server whose default user needs none.
func TestDoctorFindsTheDefaultUser(t *testing.T) {
	// The second address is of no machine: with the - Redis does without it.
	s := redistest.Start(t, append(slices.Clone(healthy), "--bind", "127.0.0.1", "-192.0.2.1", "--protected-mode", "no")...)
	do(t, s, "ACL", "SETUSER", "limiter", "on", ">password", "~*", "&*", "+@all")
	url := "--redis=redis://limiter:password@" + s.Addr()
	if ids, report, code := examine(t, append(patient, url)...); !slices.Equal(ids, []string{"open"}) || code != exitFound {
		t.Errorf("the default user needs no password: %v, %+v", ids, report.Findings)
	}
	o := optionsOf(s.Addr())
	o.Username, o.Password = "limiter", "password"
	admin := redisClient(t, o)
	for _, shut := range [][]any{{"-@all", "+ping"}, {"+@all", "resetpass", ">other"}, {"off"}} {
		if err := admin.Do(t.Context(), append([]any{"ACL", "SETUSER", "default"}, shut...)...).Err(); err != nil {
			t.Fatal(err)
		}
		if ids, report, code := examine(t, append(patient, url)...); len(ids) != 0 || code != exitOK {
			t.Errorf("%v: %v, %+v", shut, ids, report.Findings)
		}
	}
}

// documentedRights are those of docs/redis.md.
func documentedRights(t *testing.T) (rights []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "ACL SETUSER limiter on >password ")
	rest, _, closed := strings.Cut(rest, "```")
	if rights = strings.Fields(rest); !found || !closed || len(rights) < 10 || rights[0] != "~hl:*" || rights[1] != "&hl:*" {
		t.Fatalf("docs/redis.md says %v", rights)
	}
	return rights
}
