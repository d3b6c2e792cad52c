package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// slowly is a rule under which nothing that is shown changes while a test runs.
const slowly = "--rule=calls=token-bucket,1/500h,burst=1000"

func TestPeekSetReset(t *testing.T) {
	s, flags := real(t)
	cli(t, with(flags, "set", "acme", "950", slowly)...).want(t, exitOK).golden(t, "set", s)
	cli(t, with(flags, "set", "dave", "1200", slowly)...).want(t, exitOK)
	cli(t, with(flags, "peek", "acme", "bob", "dave", slowly)...).want(t, exitOK).golden(t, "peek", s)
	cli(t, with(flags, "reset", "acme", "dave", slowly)...).want(t, exitOK).golden(t, "reset", s)
}

func TestPeekJSON(t *testing.T) {
	_, flags := real(t)
	for _, rule := range []string{"token-bucket,10/1h", "sliding-window,10/1h", "fixed-window,10/8760h", "sliding-log,10/1h"} {
		for used, remaining := range map[int]int64{0: 10, 7: 3, 10: 0} {
			rule, key := "--rule=api="+rule, fmt.Sprint("key-", used)
			cli(t, with(flags, "set", key, fmt.Sprint(used), rule)...).want(t, exitOK)
			for _, json := range []string{"--json", "-json"} {
				var got struct{ Keys []keyJSON }
				cli(t, with(flags, json, "peek", key, rule)...).want(t, exitOK).read(t, &got)
				k := got.Keys[0]
				if len(got.Keys) != 1 || k.Key != key || k.Used > int64(used) || k.Used+k.Remaining != 10 || k.Remaining < remaining ||
					k.Allowed != (k.Used < 10) || k.Retry == nil || (*k.Retry > 0) == k.Allowed || (k.Reset > 0) != (k.Used > 0) || k.Rule.Name != "api" || k.Rule.Limit != 10 {
					t.Errorf("%s, %d used: %+v", rule, used, k)
				}
			}
		}
	}
	var got struct{ Keys []keyJSON }
	cli(t, with(flags, "--json", "peek", "k", "--rule=none=sliding-log,0/1h")...).want(t, exitOK).read(t, &got)
	if k := got.Keys[0]; k.Allowed || k.Retry != nil {
		t.Errorf("a limit of 0 will never admit: %+v", k)
	}
}

const rulesFile = `rules:
  api:
    algorithm: sliding-window
    limit: 100
    per: 1000h
  login:
    algorithm: token-bucket
    limit: 5
    per: 1h
plans:
  pro:
    api: {limit: 1000}
  fast:
    login: {limit: 50}
overrides:
  - key: acme
    plan: pro
  - key: friend
    unlimited: true
  - key: foe
    blocked: true
...
`

func TestPeekByRulesFile(t *testing.T) {
	_, flags := real(t)
	flags = append(flags, "--json", "--rules="+write(t, "rules.yaml", rulesFile))
	var plan struct{ Keys []keyJSON }
	cli(t, with(flags, "peek", "bob", "--rule=login", "--plan=fast")...).want(t, exitOK).read(t, &plan)
	if k := plan.Keys[0]; k.Rule.Name != "login@fast" || k.Rule.Limit != 50 {
		t.Errorf("%+v", k.Rule)
	}
	var got struct{ Keys []keyJSON }
	cli(t, with(flags, "peek", "friend", "bob", "--rule=api")...).want(t, exitOK).read(t, &got)
	if !got.Keys[0].Unlimited || !got.Keys[0].Allowed || got.Keys[1].Unlimited {
		t.Errorf("who is unlimited: %+v", got)
	}
	cli(t, with(flags[:3], "peek", "friend", "--rule=api", flags[3])...).want(t, exitOK)
	cli(t, with(flags, "reset", "friend", "--rule=api")...).want(t, exitUsage).says(t, "nothing is counted")
	cli(t, with(flags, "peek", "bob", "--rule=nope")...).want(t, exitUsage).says(t, `no rule "nope"`, "api, login")
	cli(t, with(flags, "peek", "bob", "--rule=api", "--plan=nope")...).want(t, exitUsage).says(t, `no plan "nope"`)
}

// Each of several keys is reset under its own rule.
func TestResetOfKeysWithRulesOfTheirOwn(t *testing.T) {
	_, flags := real(t)
	flags = append(flags, "--json", "--rule=login", "--rules="+write(t, "rules.yaml", `
rules:
  login: {algorithm: sliding-window, limit: 5, per: 1000h}
overrides:
  - {key: acme, rules: {login: {per: 2000h}}}
`))
	keys := []string{"bob", "acme"}
	for _, key := range keys {
		cli(t, with(flags, "set", key, "3")...).want(t, exitOK)
	}
	var got struct{ Keys []keyJSON }
	cli(t, with(flags, append([]string{"reset"}, keys...)...)...).want(t, exitOK).read(t, &got)
	if got.Keys[0].Rule.Name == got.Keys[1].Rule.Name || got.Keys[0].Used != 0 || got.Keys[1].Used != 0 {
		t.Errorf("%+v", got)
	}
	cli(t, with(flags, "set", "acme", "4")...).want(t, exitOK).read(t, &got)
	if k := got.Keys[0]; k.Used != 4 || k.Remaining != 1 {
		t.Errorf("%+v", k)
	}
}

// What cannot be used is said, before Redis is asked.
func TestBadArguments(t *testing.T) {
	bad := write(t, "bad.yaml", "rules:\n  api:\n    algorithm: sliding-windw\n")
	for _, c := range []struct {
		args string
		says string
	}{
		{"", "expected one of"},
		{"nonsense", "unexpected argument nonsense"},
		{"peek", "missing"},
		{"peek k", "missing flags: --rule"},
		{"peek k --rule=api", "--rules FILE"},
		{"peek k --rule=api --rules=/nowhere/at/all", "/nowhere/at/all: cannot be read"},
		{"peek k --rule=api --rules=" + bad, ":3:16: rules.api.algorithm"},
		{"peek k --rule=api=", "must be NAME="}, {"peek k --rule=api=x", "must be NAME="}, {"peek k --rule=api=sliding-window,5", "must be NAME="},
		{"peek k --rule=api=sliding-window,5/{}", "must be NAME="}, {"peek k --rule=api=sliding-window,5/1m,x", "must be NAME="},
		{"peek k --rule=api=nonsense,5/1m", `algorithm: there is no "nonsense"`},
		{"peek k --rule=api=sliding-window,x/1m", "limit:"}, {"peek k --rule=api=sliding-window,5/x", "per:"}, {"peek k --rule=api=sliding-window,-5/1m", "limit:"},
		{"peek k --rule=api=sliding-window,5/1m,burst=3", "burst:"}, {"peek k --rule=api=sliding-window,5/1m,colour=3", "colour"},
		{"peek k --plan=pro --rule=api", "--plan needs --rules"},
		{"set k -- -1 --rule=api=sliding-window,5/1m", "unexpected argument"},
		{"set k --rule=api=sliding-window,5/1m -- -1", "must be 0 to"},
		{"set k many --rule=api=sliding-window,5/1m", "many"},
		{"top", "--rules FILE"}, {"top --rule=api", "NAME=ALGORITHM"}, {"top --rule=api=x", "must be NAME="},
		{"top -n 0 --rule=api=sliding-window,5/1m", "-n is 0"}, {"top --near=101 --rule=api=sliding-window,5/1m", "--near is 101"},
		{"top --near=NaN --rule=api=sliding-window,5/1m", "--near is NaN"}, {"top --scan=0 --rule=api=sliding-window,5/1m", "--scan is 0"},
		{"quarantined --scan=0", "--scan is 0"},
		{"watch k", "a key needs a --rule"}, {"watch --rule=api=sliding-window,5/1m", "a key needs a --rule"}, {"watch --interval=1ms", "--interval is 1ms"}, {"watch --count=-1", "--count is -1"},
		{"doctor --slow-trip=0s", "--slow-trip is 0s"}, {"doctor --slow-trip=x", "x"},
		{"nodes --timeout=0s", "--timeout is 0s"}, {"nodes --timeout=1h", "--timeout is 1h"},
		{"nodes --shards=2000", "--shards is 2000"}, {"nodes --prefix={x}", "brace"},
		{"nodes --redis=http://x", "scheme"}, {"nodes --redis=non:sense", "neither HOST:PORT nor a URL"}, {"nodes --redis=redis://", "nor a URL"}, {"nodes --redis=/run/redis.sock", "unix:///run/redis.sock"},
		{"nodes --redis=localhost:6379:1", "nor a URL"}, {"nodes --redis=http://localhost:6379", "scheme: http"}, {"nodes --redis=rediss:localhost:6379", "rediss://host:6379"}, {"nodes --redis=redis://x/y", "database"},
		{"nodes --redis=redis://x?colour=1", "colour"}, {"nodes --redis=redis://x?master_name=m --cluster", "no --cluster"},
		{"nodes --ca=/x --redis=redis://x", "rediss://"}, {"nodes --cert=/x --redis=rediss://x", "belong together"}, {"nodes --ca=/nowhere/x --redis=rediss://x", "no such file"}, {"nodes --ca=" + bad + " --redis=rediss://x", "no certificate"},
		{"validate", "expected"},
	} {
		o := cli(t, strings.Fields(c.args)...).want(t, exitUsage).says(t, c.says)
		if o.out != "" {
			t.Errorf("%s: printed %s", c.args, o.out)
		}
	}
}

// A password is never shown, whatever is wrong.
func TestPasswordsAreNotShown(t *testing.T) {
	s := redistest.Start(t, "--requirepass", "right")
	for _, url := range []string{
		"redis://user:s3cret@127.0.0.1:1", "redis://user:s3cret@127.0.0.1:x", "redis://:s3cret/@127.0.0.1:1", "redis://:s3cret%zz@h", "redis://:s3cret@h/1/2", "redis://:s3cret@h?x=1",
		"rediss://:s3cret@127.0.0.1:1", "unix://:s3cret@/nowhere/redis.sock", "http://:s3cret@h", "redis://:s3cret@" + s.Addr(), "redis://127.0.0.1:1?master_name=m&password=s3cret", "redis://:s3cret @h",
		"redis://:12/s3cret@127.0.0.1:1/0", "redis://:12/x/s3cret@127.0.0.1:1/0", "redis://:12?s3cret=1@127.0.0.1:1", "unix://:12/s3cret@/nowhere/redis.sock",
		"redis://s3cret:12/x@127.0.0.1:1", "redis://s3cret:12#x@127.0.0.1:1", "unix://s3cret:12#x@/nowhere",
	} {
		o := cli(t, "nodes", "--redis="+url, "--timeout=5s")
		if o.code != exitUsage && o.code != exitRedis || o.err == "" || strings.Contains(o.err+o.out, "s3cret") {
			t.Errorf("%s: exit code %d: %s", url, o.code, o.err)
		}
	}
}

func TestRedisThatIsNotThere(t *testing.T) {
	for _, args := range []string{
		"peek k --rule=api=sliding-window,5/1m", "reset k --rule=api=sliding-window,5/1m", "set k 1 --rule=api=sliding-window,5/1m", "top --rule=api=sliding-window,5/1m",
		"watch --count=1", "watch k --count=1 --rule=api=sliding-window,5/1m", "quarantined", "nodes", "doctor",
	} {
		o := cli(t, append(strings.Fields(args), "--redis=redis://127.0.0.1:1")...).want(t, exitRedis).says(t, "Redis at 127.0.0.1:1", "connection refused", "Is it running there?")
		if strings.Count(o.err, "\n") != 1 || o.out != "" {
			t.Errorf("%s: %q", args, o.err)
		}
	}
	cli(t, "nodes", "--cluster", "--redis=redis://127.0.0.1:1").want(t, exitRedis)
	cli(t, "doctor", "--cluster", "--redis=redis://127.0.0.1:1").want(t, exitRedis)
	cli(t, "nodes", "--redis=redis://127.0.0.1:1?master_name=group").want(t, exitRedis).says(t, "master group of the Sentinel")
}

func TestRedisThatIsFrozen(t *testing.T) {
	s := redistest.Start(t)
	s.FreezeOrSkip(t)
	for _, args := range [][]string{{"nodes"}, {"doctor"}, {"peek", "k", slowly}} {
		cli(t, append(args, "--timeout=100ms", at(s))...).want(t, exitRedis).says(t, "--timeout")
	}
}

func TestRedisWithAPassword(t *testing.T) {
	s := redistest.Start(t, "--requirepass", "se/cret")
	cli(t, "nodes", at(s)).want(t, exitRedis).says(t, "wants a password")
	cli(t, "nodes", "--redis=redis://:wrong@"+s.Addr()).want(t, exitRedis).says(t, "disabled. The user or the password is wrong.")
	cli(t, "nodes", "--redis=redis://:se%2Fcret@"+s.Addr(), "--timeout=1m").want(t, exitOK)
	t.Setenv("HYBRIDLIMIT_REDIS", "redis://:se%2Fcret@"+s.Addr())
	cli(t, "nodes", "--timeout=1m").want(t, exitOK)
	cli(t, "nodes", "--timeout=1m", at(s)).want(t, exitRedis) // a flag wins
}

func TestClusterAndSentinel(t *testing.T) {
	k := redistest.StartCluster(t)
	flags := []string{"--redis=redis://" + k.Addrs()[0], "--cluster", "--timeout=1m"}
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprint("key-", i))
	}
	cli(t, with(flags, append([]string{"reset", slowly}, keys...)...)...).want(t, exitOK)
	cli(t, with(flags, "set", "key-7", "999", slowly)...).want(t, exitOK)
	var top topJSON
	cli(t, with(flags, "top", "--json", slowly)...).want(t, exitOK).read(t, &top)
	if len(top.Keys) != 1 || top.Keys[0].Key != "key-7" || !top.Complete || top.Counters != 20 {
		t.Errorf("%+v", top)
	}
	// Keys of most nodes are elsewhere for a client of one server.
	o := cli(t, append([]string{"reset", slowly, flags[0], flags[2], "--shards=64"}, keys...)...).want(t, exitRedis).says(t, "add --cluster")
	if o.out != "" {
		t.Errorf("printed %s", o.out)
	}
}

func TestSentinel(t *testing.T) {
	r := redistest.StartReplicaSet(t)
	flags := []string{"--redis=redis://" + r.Sentinels[0].Addr() + "?master_name=" + redistest.GroupName, "--timeout=1m"}
	cli(t, with(flags, "set", "k", "999", slowly)...).want(t, exitOK)
	cli(t, with([]string{at(r.Master), "--timeout=1m"}, "peek", "k", slowly)...).want(t, exitOK).says(t, "999")
	cli(t, with([]string{at(r.Replica), "--timeout=1m"}, "set", "k", "1", slowly)...).want(t, exitRedis).says(t, "name the master")
	o := cli(t, append([]string{"doctor", flags[0], flags[1]}, patient...)...).want(t, exitFound).says(t, "master group of the Sentinel at "+r.Sentinels[0].Addr(), "warning persistence")
	if strings.Contains(o.out, "error") && !strings.Contains(o.out, "0 errors") {
		t.Errorf("%s", o.out)
	}
}

// Keys come from anywhere: what would not be printed as it is, is escaped; long ones are cut.
func TestKeysOfAnyBytes(t *testing.T) {
	_, flags := real(t)
	for _, key := range []string{"\x1b[31mred\x1b[0m", "line\nline", "\xff\xfe", "\u202ereversed", strings.Repeat("long", 100), "日本語のキー" + strings.Repeat("長", 60), ""} {
		o := cli(t, with(flags, "set", "--", key, "999")...)
		o.want(t, exitUsage) // --rule comes before --
		o = cli(t, append(append([]string{"set", slowly}, flags...), "--", key, "999")...).want(t, exitOK)
		if strings.Count(o.out, "\n") != 3 {
			t.Errorf("%q: %q", key, o.out)
		}
		cli(t, append(append([]string{"peek", slowly, "--json"}, flags...), "--", key)...).want(t, exitOK)
	}
	var top topJSON
	cli(t, with(flags, "top", "--json", slowly)...).want(t, exitOK).read(t, &top)
	if len(top.Keys) != 7 || top.Unusable != 0 {
		t.Errorf("%+v", top)
	}
	cli(t, with(flags, "top", slowly)...).want(t, exitOK).says(t, "sha256:", `\u202ereversed`, `\x1b[31mred`)
}

// Processes that divide their keys into other shards count elsewhere, and somebody who
// looks is told.
func TestOtherShards(t *testing.T) {
	s, flags := real(t)
	cli(t, with(flags, "set", "k", "5", slowly, "--shards=64")...).want(t, exitOK)
	beat(t, s, 0, 64)
	for _, args := range [][]string{{"peek", "k", slowly}, {"set", "other", "5", slowly}, {"reset", "other", slowly}, {"top", slowly}, {"watch", "--count=1"}, {"nodes"}} {
		cli(t, with(flags, args...)...).want(t, exitOK).says(t, "version 1 with 64 shards", "see --shards")
		if o := cli(t, with(flags, append(args, "--shards=64")...)...).want(t, exitOK); o.err != "" {
			t.Errorf("%v: %s", args, o.err)
		}
	}
	cli(t, with(flags, "peek", "k", slowly, "--shards=64")...).want(t, exitOK).says(t, "k calls 5")
	cli(t, with(flags, "peek", "k", slowly, "--shards=64", "--prefix=other")...).want(t, exitOK).says(t, "k calls 0")
}

func TestKeyOfAnotherProgram(t *testing.T) {
	s, flags := real(t)
	do(t, s, "SET", "hl:1:{0}:f:5:calls:k:k", "garbage")
	cli(t, with(flags, "peek", "k", slowly)...).want(t, exitFound).says(t, "no counter of the limiter", "DEL it")
	cli(t, with(flags, "set", "k", "1", slowly)...).want(t, exitFound)
}
