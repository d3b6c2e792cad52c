package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/inspect"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// trips is how many round trips are measured.
const trips = 21

// facts is what one server has said. What it did not say is missing, and why is in the
// errors.
type facts struct {
	name    string
	user    string // empty if it is not known
	info    map[string]string
	config  map[string]string
	cluster map[string]string // CLUSTER INFO, of a node of one
	tried   []trial
	tools   []trial // what only hybridlimit top and quarantined need
	notices []trial // publishing and subscribing
	scripts error
	times   []reading
	rules   map[string][]arith.Algorithm // by name, those of which there are counters
	slow    []redis.SlowLog
	events  []redis.Latency
	fleet   redisstore.Fleet
	layout  string // that of the flags
	prefix  string
	db      int   // that is selected
	elseDB  []int // where limiters have been, while they have not been in db
	open    bool  // who shows no password may write

	infoErr, configErr, slowErr, eventsErr, fleetErr, rulesErr, dbErr error
}

// reading is the server's clock, read between two times of ours.
type reading struct{ before, server, after time.Time }

// settings are what is asked for by CONFIG GET: by name, so that no password is among the
// answers.
var settings = []string{
	"appendfsync", "appendonly", "bind", "busy-reply-threshold", "client-output-buffer-limit", "cluster-require-full-coverage",
	"lua-time-limit", "maxclients", "maxmemory", "maxmemory-policy", "min-replicas-to-write", "port", "protected-mode", "save",
	"slowlog-log-slower-than", "latency-monitor-threshold", "timeout", "tls-auth-clients",
}

// gather asks one server for everything. The error is of a server that does not answer.
func gather(ctx context.Context, rdb, server redis.UniversalClient, survey *inspect.Survey, timeout time.Duration) (*facts, error) {
	f := &facts{name: "Redis", config: map[string]string{}, layout: survey.Keyspace().Layout(), prefix: survey.Keyspace().Prefix()}
	c, single := server.(*redis.Client)
	if single {
		f.name, f.db = c.Options().Addr, c.Options().DB
		f.user = c.Options().Username
	}
	if err := f.readClock(ctx, server, 1); err != nil && !refused(err) {
		return nil, err
	}
	text, err := server.Info(ctx).Result()
	f.info, f.infoErr = parseInfo(text), err
	f.readConfig(ctx, server)
	if user, err := server.ACLWhoAmI(ctx).Result(); err == nil {
		f.user = user
	}
	if f.info["cluster_enabled"] == "1" {
		if text, err := server.ClusterInfo(ctx).Result(); err == nil {
			f.cluster = parseInfo(text)
		}
	}
	f.slow, f.slowErr = server.SlowLogGet(ctx, 128).Result()
	if single {
		f.events, f.eventsErr = c.Latency(ctx).Result()
	}
	key := probeKey(ctx, rdb, f.name, survey.Keyspace())
	f.tryCommands(ctx, server, key)
	f.tryNotices(ctx, server, survey.Keyspace(), timeout)
	f.open = opens(ctx, server, key)
	f.fleet, f.fleetErr = survey.Fleet(ctx)
	f.readRules(ctx, survey)
	f.scripts = tryScripts(ctx, survey)
	f.readDatabases(ctx, server, survey.Keyspace())
	if err := f.readClock(ctx, server, trips); err != nil && !refused(err) {
		return nil, err
	}
	return f, nil
}

// refused reports whether a server has answered with an error, or has none to answer
// with: it is there.
func refused(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	class, reason := redisstore.Classify(err)
	return class != redisstore.ClassMisconfigured || reason == "noperm" || reason == "unsupported"
}

// readClock asks for the time so many times.
func (f *facts) readClock(ctx context.Context, server redis.UniversalClient, n int) error {
	for range n {
		r := reading{before: time.Now()}
		var err error
		if r.server, err = server.Time(ctx).Result(); err != nil {
			return err
		}
		r.after = time.Now()
		f.times = append(f.times, r)
	}
	return nil
}

// readConfig asks for settings one by one: more at once is for Redis 7 and later, and one
// that a server does not know must not hide the others.
func (f *facts) readConfig(ctx context.Context, server redis.UniversalClient) {
	for _, name := range settings {
		values, err := server.ConfigGet(ctx, name).Result()
		if err != nil {
			f.configErr = cmp.Or(f.configErr, err)
			return // what forbids one forbids all
		}
		for name, value := range values {
			f.config[strings.ToLower(name)] = value
		}
	}
}

// readDatabases finds out whether limiters are in another database than the one that is
// selected.
func (f *facts) readDatabases(ctx context.Context, server redis.UniversalClient, keys redisstore.Keyspace) {
	c, single := server.(*redis.Client)
	if !single || f.info == nil || f.info["cluster_enabled"] == "1" || f.fleetErr != nil || len(f.fleet.Layouts) > 0 {
		return
	}
	for _, field := range slices.Sorted(maps.Keys(f.info)) {
		text, is := strings.CutPrefix(field, "db")
		n, err := strconv.Atoi(text)
		if !is || err != nil || n == f.db {
			continue
		}
		o := *c.Options()
		o.DB, o.PoolSize, o.MinIdleConns = n, 1, 0
		other := redis.NewClient(&o)
		found, err := other.ZCard(ctx, keys.LayoutsKey()).Result()
		f.dbErr = cmp.Or(f.dbErr, err)
		if found > 0 {
			f.elseDB = append(f.elseDB, n)
		}
		other.Close()
	}
}

// readRules looks at the names of counters among so many keys.
func (f *facts) readRules(ctx context.Context, survey *inspect.Survey) {
	const most = 10_000
	f.rules = map[string][]arith.Algorithm{}
	_, f.rulesErr = survey.Scan(ctx, most, func(names []inspect.Name) error {
		for _, n := range names {
			if !slices.Contains(f.rules[n.Rule], n.Algorithm) {
				f.rules[n.Rule] = append(f.rules[n.Rule], n.Algorithm)
			}
		}
		return nil
	})
}

// parseInfo takes lines of "name:value" apart.
func parseInfo(text string) map[string]string {
	if text == "" {
		return nil
	}
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && !strings.HasPrefix(name, "#") {
			m[name] = value
		}
	}
	return m
}

// field returns what INFO says under a name. ok is false if it does not say.
func (f *facts) field(name string) (value string, ok bool) {
	value, ok = f.info[name]
	return value, ok
}

// number returns what INFO says under a name.
func (f *facts) number(name string) (n int64, ok bool) {
	n, err := strconv.ParseInt(f.info[name], 10, 64)
	return n, err == nil
}

// setting returns a setting.
func (f *facts) setting(name string) (value string, ok bool) {
	value, ok = f.config[name]
	return value, ok
}

// settingNumber returns a setting that is a number.
func (f *facts) settingNumber(name string) (n int64, ok bool) {
	n, err := strconv.ParseInt(f.config[name], 10, 64)
	return n, err == nil
}

// noInfo and noConfig say why something is not known.
func (f *facts) noInfo() answer { return cannotTell("INFO does not say" + because(f.infoErr)) }

func (f *facts) noConfig() answer {
	return cannotTell("CONFIG GET does not say" + because(f.configErr))
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf(" (%.100s)", err)
}

// server says who it is.
func (f *facts) server() Server {
	s := Server{Name: f.name, Product: "Redis", Version: f.info["redis_version"], Role: f.info["role"]}
	if name := f.info["server_name"]; name != "" && name != "redis" {
		s.Product = strings.ToUpper(name[:1]) + name[1:]
		s.Version = cmp.Or(f.info[name+"_version"], s.Version)
	}
	if s.Role == "slave" {
		s.Role = "replica"
	}
	s.Known, s.Tested = known(s.Product, s.Version)
	return s
}
