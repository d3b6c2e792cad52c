package doctor

import (
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What no test can do to a real server is said to the checks: versions, clocks, networks.

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// well returns what a healthy server says.
func well() *facts {
	return &facts{
		name: "redis:6379",
		info: map[string]string{
			"redis_version": "7.0.15", "role": "master", "cluster_enabled": "0", "maxmemory": "0", "maxmemory_policy": "noeviction", "used_memory": "1000000",
			"used_memory_rss": "2000000", "total_system_memory": "8000000000", "aof_enabled": "1", "rdb_last_bgsave_status": "ok", "aof_last_write_status": "ok",
			"number_of_cached_scripts": "12", "connected_clients": "10", "maxclients": "10000",
		},
		config: map[string]string{
			"appendfsync": "everysec", "appendonly": "yes", "bind": "* -::*", "busy-reply-threshold": "5000", "cluster-require-full-coverage": "no",
			"client-output-buffer-limit": "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", "lua-time-limit": "5000", "maxclients": "10000",
			"maxmemory": "0", "maxmemory-policy": "noeviction", "min-replicas-to-write": "0", "protected-mode": "no", "save": "", "slowlog-log-slower-than": "10000",
			"latency-monitor-threshold": "100", "timeout": "0",
		},
		times: readings(0, 0, 0, 0, 0), prefix: "hl", layout: "version 1 with 1 shards",
	}
}

var usual = Options{SlowTrip: DefaultSlowTrip, SlowCommand: DefaultSlowCommand, Encrypted: true, Password: true}

// readings are of a clock that is off by so much, each a second after the one before,
// over a network that takes 2 ms.
func readings(offs ...time.Duration) (list []reading) {
	for i, off := range offs {
		before := noon.Add(time.Duration(i) * time.Second)
		list = append(list, reading{before, before.Add(time.Millisecond + off), before.Add(2 * time.Millisecond)})
	}
	return list
}

// judged returns the ids of what is found, and of what cannot be told.
func judged(f *facts, o Options) (found []string, unknown []string, r Report) {
	r.judge(f, o)
	for _, x := range r.Findings {
		found = append(found, x.ID)
	}
	for _, u := range r.Unknown {
		unknown = append(unknown, u.IDs...)
	}
	return found, unknown, r
}

func TestChecks(t *testing.T) {
	info := func(pairs ...string) func(*facts, *Options) {
		return func(f *facts, _ *Options) {
			for i := 0; i < len(pairs); i += 2 {
				f.info[pairs[i]] = pairs[i+1]
			}
		}
	}
	config := func(name, value string) func(*facts, *Options) {
		return func(f *facts, _ *Options) { f.config[name] = value }
	}
	tried := func(text string) func(*facts, *Options) {
		return func(f *facts, _ *Options) { f.tried = []trial{{"get", nil}, {"set", proto(text)}} }
	}
	clock := func(offs ...time.Duration) func(*facts, *Options) {
		return func(f *facts, _ *Options) { f.times = readings(offs...) }
	}
	for name, c := range map[string]struct {
		ids   string
		spoil func(*facts, *Options)
	}{
		"well":           {"", func(*facts, *Options) {}},
		"6.0":            {"version", info("redis_version", "6.0.16")},
		"1 s ahead":      {"", clock(time.Second, time.Second)},
		"an hour ahead":  {"clock", clock(time.Hour, time.Hour)},
		"steps back":     {"clock-jump", clock(0, 0, -time.Second, -time.Second)},
		"81 %":           {"memory", info("maxmemory", "1230000")},
		"79 %":           {"", info("maxmemory", "1270000")},
		"machine full":   {"memory", info("used_memory_rss", "7000000000")},
		"out of memory":  {"memory", tried("OOM command not allowed when used memory > 'maxmemory'.")},
		"aof broken":     {"snapshot", info("aof_last_write_status", "err")},
		"misconf":        {"snapshot", tried("MISCONF Redis is configured to save RDB snapshots")},
		"busy":           {"writes", tried("BUSY Redis is busy running a script.")},
		"something else": {"writes", tried("ERR something else")},
		"moved":          {"", tried("MOVED 1234 10.0.0.1:6379")},
		"cluster down": {"cluster-state", func(f *facts, o *Options) {
			f.info["cluster_enabled"], o.Cluster = "1", true
			f.cluster = map[string]string{"cluster_state": "fail", "cluster_slots_ok": "16000"}
		}},
		"too few replicas": {"replicas", func(f *facts, _ *Options) {
			f.config["min-replicas-to-write"], f.info["min_slaves_good_slaves"] = "2", "1"
		}},
		"enough replicas": {"", func(f *facts, _ *Options) {
			f.config["min-replicas-to-write"], f.info["min_slaves_good_slaves"] = "2", "2"
		}},
		"noreplicas":      {"replicas", tried("NOREPLICAS Not enough good replicas to write.")},
		"no encryption":   {"plaintext", func(_ *facts, o *Options) { o.Encrypted = false }},
		"open":            {"open", func(_ *facts, o *Options) { o.Password = false }},
		"open everywhere": {"open", func(f *facts, o *Options) { o.Password, o.Local, f.config["bind"] = false, true, "127.0.0.1 10.0.0.7" }},
		"open but to us":  {"open", func(f *facts, _ *Options) { f.open = true }},
		"for certificates": {"", func(f *facts, o *Options) {
			o.Password, f.open, f.config["port"], f.config["tls-auth-clients"] = false, true, "0", "yes"
		}},
		"for certificates, or not": {"open", func(f *facts, o *Options) {
			o.Password, f.open, f.config["port"], f.config["tls-auth-clients"] = false, true, "6379", "yes"
		}},
		"certificates at will": {"open", func(f *facts, o *Options) {
			o.Password, f.open, f.config["port"], f.config["tls-auth-clients"] = false, true, "0", "optional"
		}},
		"open to itself":    {"", func(f *facts, o *Options) { o.Password, f.config["bind"] = false, "127.0.0.1 -::1" }},
		"protected":         {"", func(f *facts, o *Options) { o.Password, f.config["protected-mode"] = false, "yes" }},
		"60 s idle":         {"", config("timeout", "60")},
		"59 s idle":         {"idle-timeout", config("timeout", "59")},
		"1 MB buffer":       {"", config("client-output-buffer-limit", "normal 1048576 0 0 replica 1 1 1")},
		"small for notices": {"output-buffer", config("client-output-buffer-limit", "normal 0 0 0 pubsub 1048575 0 0")},
		"silent channel": {"notices", func(f *facts, _ *Options) {
			f.notices = []trial{{"publish", nil}, {"subscribe", redisstore.ErrSilence}}
		}},
		"no channels": {"notices", func(f *facts, _ *Options) {
			f.notices = []trial{{"publish", proto("NOPERM No permissions to access a channel")}, {"subscribe", proto("NOPERM No permissions to access a channel")}}
		}},
		"79 % of the clients":  {"", info("connected_clients", "7999")},
		"80 % of the clients":  {"clients", info("connected_clients", "8000")},
		"500 scripts":          {"", info("number_of_cached_scripts", "500")},
		"501 scripts":          {"script-cache", info("number_of_cached_scripts", "501")},
		"slow":                 {"slow-commands", slow(time.Second, time.Minute)},
		"slow, long ago":       {"", slow(time.Second, 2*time.Hour)},
		"not slow":             {"", slow(50*time.Millisecond, time.Minute)},
		"a stall":              {"latency-events", stall("aof-fsync-always", time.Second)},
		"a stall of a command": {"", stall("command", time.Second)},
		"a short stall":        {"", stall("fork", time.Millisecond)},
		"scripts forbidden":    {"scripts", func(f *facts, _ *Options) { f.scripts = proto("ERR Error running script: bad argument") }},
	} {
		t.Run(name, func(t *testing.T) {
			f, o := well(), usual
			c.spoil(f, &o)
			found, unknown, r := judged(f, o)
			if strings.Join(found, " ") != c.ids || len(unknown) != 0 {
				t.Errorf("found %v, want %q; cannot tell %v; %+v", found, c.ids, unknown, r.Findings)
			}
		})
	}
}

// proto is an error as Redis sends it.
type proto string

func (p proto) Error() string { return string(p) }
func (proto) RedisError()     {}

func slow(took, ago time.Duration) func(*facts, *Options) {
	return func(f *facts, _ *Options) {
		f.slow = []redis.SlowLog{{Time: f.now().Add(-ago), Duration: took, Args: []string{"KEYS", "*"}}, {Duration: took}}
	}
}

func stall(name string, took time.Duration) func(*facts, *Options) {
	return func(f *facts, _ *Options) {
		f.events = []redis.Latency{{Name: name, Time: f.now(), Latest: took, Max: took}}
	}
}

// A server that says nothing, or garbage, is no error and no finding: doctor cannot tell.
func TestChecksOfASilentServer(t *testing.T) {
	silent := &facts{name: "redis", infoErr: proto("NOPERM"), configErr: proto("ERR unknown command"), slowErr: proto("ERR"), eventsErr: proto("ERR"), fleetErr: errors.New("x"), dbErr: errors.New("x")}
	garbage := well()
	for _, m := range []map[string]string{garbage.info, garbage.config} {
		for name := range maps.Keys(m) {
			m[name] = "garbage"
		}
	}
	garbage.info["role"], garbage.info["aof_enabled"], garbage.info["rdb_last_bgsave_status"], garbage.info["aof_last_write_status"] = "master", "1", "ok", "ok"
	garbage.info["maxmemory_policy"], garbage.config["maxmemory-policy"], garbage.config["protected-mode"] = "noeviction", "noeviction", "yes"
	for name, f := range map[string]*facts{"silent": silent, "garbage": garbage} {
		o := usual
		o.Password = false
		if found, unknown, r := judged(f, o); len(found) != 0 || len(unknown) < 8 {
			t.Errorf("%s: found %v, cannot tell %v: %+v", name, found, unknown, r.Findings)
		}
	}
}

// Without the server's time nobody knows how long ago something was slow.
func TestSlowAtAnUnknownTime(t *testing.T) {
	f := well()
	f.slow = []redis.SlowLog{{Time: noon.Add(-24 * time.Hour), Duration: time.Second, Args: []string{"KEYS", "*"}}}
	f.events = []redis.Latency{{Name: "fork", Time: noon.Add(-24 * time.Hour), Latest: time.Second, Max: time.Second}}
	if found, unknown, r := judged(f, usual); len(found) != 0 || len(unknown) != 0 {
		t.Errorf("yesterday: found %v, cannot tell %v; %+v", found, unknown, r.Findings)
	}
	f.times = nil
	found, unknown, r := judged(f, usual)
	slices.Sort(unknown)
	if want := "clock clock-jump latency latency-events slow-commands"; len(found) != 0 || strings.Join(unknown, " ") != want {
		t.Errorf("found %v, cannot tell %v, want %s; %+v", found, unknown, want, r.Findings)
	}
}

// To connect takes longer than a round trip, and is none.
func TestLatencyIsWithoutConnecting(t *testing.T) {
	f := well()
	f.times = readings(0, 0, 0)
	f.times[0].before = f.times[0].before.Add(-time.Minute)
	f.times[1].after = f.times[1].after.Add(time.Second)
	f.times[2].after = f.times[2].after.Add(time.Second)
	_, _, r := judged(f, usual)
	if want := "A round trip takes 1.1s, at most 1.1s (middle and most of 2)."; len(r.Findings) != 1 || r.Findings[0].What != want {
		t.Errorf("%+v, want %s", r.Findings, want)
	}
}

// Each word by which doctor calls a finding is explained, and nothing is that is no more.
func TestChecksAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| id | found when |")
	table, _, closed := strings.Cut(table, "\n\n")
	if !found || !closed {
		t.Fatal("docs/cli.md has no table of findings")
	}
	var ids []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(table, -1) {
		ids = append(ids, m[1])
	}
	if !slices.Equal(ids, IDs()) {
		t.Errorf("docs/cli.md has %v, doctor %v", ids, IDs())
	}
}
