package redisstore

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// everyScript is what has to agree.
var everyScript = map[string]*script{
	"batch": scriptBatch, "take_funnel": scriptTake["f"], "take_window": scriptTake["w"], "take_log": scriptTake["l"], "take_all": scriptTake[""],
	"renew": scriptRenew, "refund": scriptRefund, "beat": scriptBeat, "seq": scriptSeq, "nodes": scriptNodes,
}

// step is one line of the table: a script at a given time, or a plain command.
type step struct {
	script *script
	at     int64 // µs
	keys   []string
	args   []any
	plain  []any
}

// command returns what is sent. In place of the server's clock the script reads
// the step's time, so that everything that follows from it can be compared.
func (s step) command(t *testing.T) []any {
	t.Helper()
	if s.script == nil {
		return s.plain
	}
	text := s.script.source
	for was, is := range map[string]string{
		"local t = redis.call('TIME')\n": fmt.Sprintf("local t = { '%d', '%d' }\n", s.at/1e6, s.at%1e6),
		// Or a key expires here and not there while the machine is busy.
		"local SLACK = 1000 ": "local SLACK = 3600000 ",
	} {
		if !strings.Contains(text, was) {
			t.Fatalf("the scripts have changed: %q is not there", was)
		}
		text = strings.ReplaceAll(text, was, is)
	}
	text = strings.ReplaceAll(text, "'PX', '10000'", "'PX', '3600000'") // an empty ledger: the same
	cmd := []any{"EVAL", text, len(s.keys)}
	for _, k := range s.keys {
		cmd = append(cmd, k)
	}
	return append(cmd, s.args...)
}

// outcome is what a step has answered and left behind.
type outcome struct {
	reply string
	state string
	ttls  map[string]time.Duration
}

func play(t *testing.T, rdb *redis.Client, s step) (o outcome) {
	t.Helper()
	reply, err := rdb.Do(ctx, s.command(t)...).Result()
	o = outcome{reply: fmt.Sprintf("%q", reply), ttls: map[string]time.Duration{}}
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Errorf("%q: %v", s.args, err)
	}
	keys := rdb.Keys(ctx, "*").Val()
	slices.Sort(keys)
	for _, k := range keys {
		o.ttls[k] = rdb.PTTL(ctx, k).Val()
		o.state += fmt.Sprintf("%q: ", k)
		switch kind := rdb.Type(ctx, k).Val(); kind {
		case "string":
			o.state += fmt.Sprintf("%q\n", rdb.Get(ctx, k).Val())
		case "zset":
			o.state += fmt.Sprintf("%v\n", rdb.ZRangeWithScores(ctx, k, 0, -1).Val())
		default:
			o.state += kind + "\n"
		}
	}
	return o
}

// stateWithout returns the state without the keys that are about to expire, if the other outcome does not
// have them: one server may be faster.
func (o outcome) stateWithout(p outcome) string {
	return strings.Join(slices.DeleteFunc(strings.SplitAfter(o.state, "\n"), func(line string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(o.ttls)), func(k string) bool {
			_, has := p.ttls[k]
			return !has && o.ttls[k] >= 0 && o.ttls[k] < time.Minute && strings.HasPrefix(line, fmt.Sprintf("%q: ", k))
		})
	}), "")
}

// differs compares two outcomes. Servers count TTLs down by clocks of their own.
func (o outcome) differs(p outcome) string {
	switch {
	case o.reply != p.reply:
		return fmt.Sprintf("replies\n%s\n%s", o.reply, p.reply)
	case o.stateWithout(p) != p.stateWithout(o):
		return fmt.Sprintf("states\n%s\n%s", o.state, p.state)
	}
	for k, ttl := range o.ttls {
		if d := ttl - p.ttls[k]; d < -2*time.Minute || d > 2*time.Minute {
			return fmt.Sprintf("TTLs of %s: %v, %v", k, ttl, p.ttls[k])
		}
	}
	return ""
}

// Every script, over and over, in a table and at random: the same replies, the
// same states, the same TTLs on every server, to the last digit.
//
// Fault 68: miniredis agrees with every server that is installed, see redistest.Binaries.
// Fault 120: other versions give the same replies.
func TestConformance(t *testing.T) {
	judge := onReal(t).rdb
	servers := map[string]*redis.Client{"miniredis": onMini(t).rdb, redistest.Default(): judge}
	for _, binary := range redistest.Binaries()[1:] {
		srv, err := redistest.Launch(redistest.Options{Binary: binary})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(srv.Close)
		servers[binary] = dial(t, srv.Addr())
	}
	used := map[*script]int{}
	for name, steps := range conformanceTables(t) {
		for _, rdb := range servers {
			rdb.FlushAll(ctx)
		}
		for i, s := range steps {
			used[s.script]++
			want := play(t, judge, s)
			for server, rdb := range servers {
				if rdb == judge {
					continue
				}
				if why := play(t, rdb, s).differs(want); why != "" {
					t.Fatalf("%s, step %d %q %v %v: %s and %s differ: %s", name, i, s.keys, s.args, s.plain, server, redistest.Default(), why)
				}
			}
		}
	}
	for name, s := range everyScript {
		if used[s] < 10 {
			t.Errorf("%s.lua was compared %d times only", name, used[s])
		}
	}
	if files, _ := filepath.Glob("lua/*.lua"); len(files) != len(everyScript)+8 {
		t.Errorf("%d files in lua, %d scripts and the 8 that they share are compared", len(files), len(everyScript))
	}
}

func conformanceTables(t *testing.T) map[string][]step {
	tables := map[string][]step{"poison": poisonTable()}
	for seed := range uint64(limittest.Cases(4, 1)) {
		tables[fmt.Sprint("random ", seed)] = randomTable(t, seed)
	}
	return tables
}

// poisonTable lets every script meet every kind of value.
func poisonTable() (steps []step) {
	at := epoch.UnixMicro()
	for _, v := range []string{
		"", "abc", "f", "f 0 1000 5 0", "f 0 9007199254740991 1000 5 0", "f 0 9007199254740992 1000 5 0", "f 0 07 1000 5 0", "f 0 0 1000/100 1760000009999999 500", "w 0 0 60000000 29333333:5:60000000",
		"w 0 9007199254740992 60000000 29333333:5:60000000", "w 0 07 60000000 29333333:5:60000000", "w 0 60000000 29333333:5:60000000",
		"f 0 1760000000000000 1000 5 0", "f 0 1760000000000000 1000 99999999999999999999 0", "f 010 1760000000000000 1000 1 1", "f 0 1760000000000000 0 1 0", "f -1 1760000000000000 1000 1 1", "f nan 1760000000000000 nan nan nan",
		"f 0 1760000000000000 1000/100 1760000009999999 500", "f 0 1760000000000000 1000/250.5 1760000009999999 500", "f 3 1760000000000000 7000/1000000 1760000009999999 6999", "f 0 1760000000000000 1000/ 5 0", "f 0 1760000000000000 1000/e 5 0", "f 0 1760000000000000 1000/1e999 5 0",
		"f 0 1760000000000000 1000/-1 5 0", "f 0 1760000000000000 1000/0 5 0", "f 0 1760000000000000 /1 5 0", "f 0 1760000000000000 1000/1/1 5 0",
		"f 0 1760000000000000 1000 9007199254740991 999", "f 0 1760000000000000 1000 9007199254740992 0", "f 9007199254740991 1760000000000000 1000 5 5", "f 0 1760000000000000 1000 1 1\x00", " f 0 1760000000000000 1000 1 1",
		"f 5/3 1760000000000000 1000/100 1760000009999999 500", "f 3/5 1760000000000000 1000/100 1 1", "f 5/ 1760000000000000 1000 1 1", "f /5 1760000000000000 1000 1 1", "f 5/5/5 1760000000000000 1000 1 1", "w 7/7 1760000000000000 60000000 29333333:5:60000000", "w 7/8 1760000000000000 60000000 29333333:5:60000000", "w 7/07 1760000000000000 60000000 29333333:5:60000000",
		"w 0 1760000000000000 60000000", "w 0 1760000000000000 60000000 29333333:5:60000000", "w 0 1760000000000000 60000000 29333333:9007199254740992:7", "w 0 1760000000000000 60000000 29333333:9007199254740993:7",
		"w 0 1760000000000000 1 1:1:7", "w 0 1760000000000000 0 1:1:7", "w 0 1760000000000000 60000000 1:1:7 ", "w 0 1760000000000000 60000000 29333333:1e3:7", "w 0 1760000000000000 60000000 29333339:7:7", "w 5 1760000000000000 7000 251428571428:3:7 251428571429:4:7",
		"w 0 1760000000000000 60000000 29333333:5", "w 0 1760000000000000 60000000 29333333:5:", "w 0 1760000000000000 60000000 29333333:5:07", "w 0 1760000000000000 60000000 29333333:5:60000001", "w 0 1760000000000000 60000000 29333333:5:9007199254740993",
		"1 5eed 2 - -", "2 5eed 2 - -", "2 5eee 2 - -", "2 5eedx 2 - -", "1 2 -", "2 5eed 2 -", "9007199254740991 1 1 - -", "4503599627370495 a 7 0,1 -", "4503599627370496 a 7 - -", "0 0 0 - -", "00 0 0 - -", "2 5eed -1 - -", "1 2 3 4",
		"1 5eed 2 - 0:1", "2 5eed 2 - 0:99999999999999999999,1:1", "1 5eed 2 - :", "1 5eed 2 0 0:1,0:2", "2 5eed 2 - 00:1",
	} {
		for _, s := range everyCall(at, 1) {
			steps = append(steps, step{plain: []any{"SET", s.keys[len(s.keys)-1], v, "PX", 3600000}})
			if s.script == scriptBatch {
				steps = append(steps, step{plain: []any{"SET", s.keys[0], v, "PX", 3600000}})
			}
			if s.script == scriptTake["l"] {
				continue // the wrong type is below
			}
			steps = append(steps, s, step{plain: []any{"FLUSHALL"}})
		}
	}
	for _, poison := range [][]any{{"LPUSH", "", "x"}, {"HSET", "", "a", "b"}, {"SADD", "", "x"}} {
		for _, s := range everyCall(at, 1) {
			broken := slices.Clone(poison)
			broken[1] = s.keys[len(s.keys)-1]
			steps = append(steps, step{plain: broken}, s, s, step{plain: []any{"FLUSHALL"}})
		}
	}
	return steps
}

// everyCall returns one call of each script for n units.
func everyCall(at, n int64) []step {
	minute := int64(60_000_000)
	return []step{
		{script: scriptTake["f"], at: at, keys: []string{"f"}, args: []any{"1", "f", "1000/100", 5000, 0, 7200000, n * 5, 999}},
		{script: scriptTake["w"], at: at, keys: []string{"w"}, args: []any{"1", "w", 10, minute, 2, 7200000, n}},
		{script: scriptTake["w"], at: at, keys: []string{"x"}, args: []any{"1", "w", 10, minute, 0, 7200000, n}},
		{script: scriptTake["l"], at: at, keys: []string{"l"}, args: []any{"1", "l", 10, 60 * minute, n}},
		{script: scriptRenew, at: at, keys: []string{"f"}, args: []any{"f", "1000/100", 0, 7200000, 0, 0}},
		{script: scriptRenew, at: at, keys: []string{"w"}, args: []any{"w", minute, 2, 7200000, 0}},
		{script: scriptRenew, at: at, keys: []string{"l"}, args: []any{"l", minute, 0, 7200000, 0}},
		{script: scriptRenew, at: at, keys: []string{"f"}, args: []any{"f", "1000/100", 0, 7200000, n * 5, 999}},
		{script: scriptRenew, at: at, keys: []string{"w"}, args: []any{"w", minute, 2, 7200000, n}},
		{script: scriptRenew, at: at, keys: []string{"l"}, args: []any{"l", minute, 0, 7200000, n}},
		{script: scriptRefund, at: at, keys: []string{"f"}, args: []any{"f", "1000/100", 0, 7200000, n * 5, 999, 500, 0}},
		{script: scriptRefund, at: at, keys: []string{"w"}, args: []any{"w", minute, 2, 7200000, n}},
		{script: scriptRefund, at: at, keys: []string{"x"}, args: []any{"w", minute, 0, 7200000, n}},
		{script: scriptRefund, at: at, keys: []string{"l"}, args: []any{"l", minute, 0, 7200000, n}},
		{script: scriptRefund, at: at, keys: []string{"f"}, args: []any{"f", "1000/100", 0, 7200000, n * 5, 999, 500, 0, at - 3, at + 30*n, 7}},
		{script: scriptRefund, at: at, keys: []string{"w"}, args: []any{"w", minute, 2, 7200000, n, 0, 0, 0, at - n*minute/2}},
		{script: scriptRefund, at: at, keys: []string{"x"}, args: []any{"w", minute, 0, 7200000, n, 0, 0, 0, at - n*minute/2}},
		{script: scriptRefund, at: at, keys: []string{"l"}, args: []any{"l", minute, 0, 7200000, n, 0, 0, 0, at}},
		{script: scriptTake["f"], at: at, keys: []string{"f"}, args: []any{"m", "f", "1000/250.5", 5000, 0, 7200000, 0, 0, 40, 7, 20, 4, 10, 2, n}},
		{script: scriptTake["w"], at: at, keys: []string{"w"}, args: []any{"m", "w", 10, minute, 2, 7200000, n}},
		{script: scriptTake["l"], at: at, keys: []string{"l"}, args: []any{"m", "l", 10, 60 * minute, n}},
		{script: scriptTake[""], at: at, keys: []string{"f", "w", "l", "f", "x"}, args: []any{
			"s", "f", "1000/100", 5000, 0, 7200000, n * 5, 999, "0", n * 4, 0, "w", 10, minute, 2, 7200000, n, "1", n, 0,
			"l", 10, 60 * minute, n, "0", n, 0, "f", "1000/250.5", 6000, 0, 7200000, n * 5, 999, "0", n, 999, "w", 10, minute, 0, 7200000, n, "0", n, 0,
		}},
		{script: scriptTake[""], at: at, keys: []string{"w", "w", "l", "l", "f", "f"}, args: []any{
			"s", "w", 10, minute, 2, 7200000, n, "0", 1, 0, "w", 10, minute / 7, 3, 7200000, n, "0", n - 1, 0,
			"l", 10, 60 * minute, 3, "0", 1, 0, "l", 10, 60 * minute, n, "1", n, 0,
			"f", "1000/100", 50, 0, 7200000, n * 5, 999, "1", n * 5, 999, "f", "7000/1000000", 6000, 0, 7200000, n * 5, 6999, "1", n, 999,
		}},
		{script: scriptTake["f"], at: at, keys: []string{"f"}, args: []any{"1+", "f", "1000/100", 5000, 0, 7200000, n * 5, 999}},
		{script: scriptTake["f"], at: at, keys: []string{"f"}, args: []any{"0+", "f", "1000/250.5", 5000, 0, 7200000, n * 5, 999}},
		{script: scriptTake["w"], at: at, keys: []string{"w"}, args: []any{"1+", "w", 10, minute, 2, 7200000, n}},
		{script: scriptTake["w"], at: at, keys: []string{"x"}, args: []any{"0+", "w", 10, minute, 0, 7200000, n}},
		{script: scriptTake[""], at: at, keys: []string{"f", "w", "f"}, args: []any{
			"s+", "f", "1000/100", 5000, 0, 7200000, n * 5, 999, "0", n * 4, 0, "w", 10, minute, 2, 7200000, n, "1", n, 0,
			"f", "1000/250.5", 6000, 0, 7200000, n * 5, 999, "0", n, 999,
		}},
		{script: scriptBeat, at: at, keys: []string{"nodes", "layouts", "channel", "ledger"}, args: []any{"n1", 3600000, 86400000, "one", ""}},
		{script: scriptBeat, at: at, keys: []string{"nodes", "layouts", "channel"}, args: []any{"n1", 3600000, 86400000, "one", fmt.Sprint("id", n)}},
		{script: scriptSeq, at: at, keys: []string{"ledger"}, args: []any{86400000}},
		{script: scriptNodes, at: at, keys: []string{"nodes", "layouts"}, args: []any{n}},
		{script: scriptBatch, at: at, keys: []string{"ledger", "f"}, args: []any{2, 1, 0, 86400000, "5eed", n,
			"f 1000/100 7200000 100 0\n", fmt.Sprintf("f1 %d %d 999 7 3;b %d 9 %d 5000 0\n", n, n*5, n, at-5)}},
		{script: scriptBatch, at: at, keys: []string{"ledger", "w"}, args: []any{2, 1, 1, 86400000, "5eed", n,
			"w 60000000 2 7200000\n", fmt.Sprintf("w1 %d %d:%d:%d;r 7 %d %d:3:9;b %d %d:2:0\n", n, at/minute, n, n, at-5, at/minute-1, at-5, at/minute-1)}},
	}
}

// randomTable is a life of some keys: batches, questions, resets, heartbeats,
// times that mostly go forward, and numbers up to the largest.
func randomTable(t *testing.T, seed uint64) (steps []step) {
	rng := rand.New(rand.NewPCG(68, seed))
	number := func() int64 {
		n := []int64{0, 1, 2, 5, 1000, rng.Int64N(1 << 40), 1<<53 - 1, 1 << 53}[rng.IntN(8)]
		return max(n, 0)
	}
	store := &Store{keys: Keyspace{prefix: DefaultKeyPrefix, shards: 1}}
	rules := []*limit.Rule{
		funnel(t, 1000, 7, 3*time.Minute), funnel(t, 1<<53, 1<<53, time.Hour),
		sliding(t, 1000, time.Hour, 10), sliding(t, 1<<53, arith.MaxWindow, 1), sliding(t, 10, 7*time.Minute, 1000), fixed(t, 100, time.Hour),
	}
	at := epoch.UnixMicro()
	for seq := int64(1); seq <= 60; seq++ {
		at += []int64{0, 1, rng.Int64N(1e6), rng.Int64N(3600e6), -rng.Int64N(60e6)}[rng.IntN(5)]
		b := &Batch{Node: "n1", Seq: max(seq-rng.Int64N(2), 1), Accept: rng.IntN(3) == 0}
		b.Prev = b.Seq - 1
		for range 1 + rng.IntN(4) {
			rule := rules[rng.IntN(len(rules))]
			op := report.Report{Key: store.Keyspace().CounterKey(rule, fmt.Sprint("k", rng.IntN(3))), Rule: rule, Units: number(), Restore: rng.IntN(3) == 0}
			if arith.Of(rule).Algorithm == arith.TokenBucket {
				op.Back, op.BackTop = arith.Of(rule).Cost(rng.Int64N(2)*number()), arith.Of(rule).Cost(number())
				op.Debt, op.Ceiling = min(rng.Int64N(2)*number(), op.Units), arith.Of(rule).Cost(number())
				op.Ahead = arith.Of(rule).Diff(arith.Of(rule).Cost(op.Units), arith.Of(rule).Cost(rng.Int64N(2)*number()))
				op.Known = report.State{Gen: rng.Int64N(2) * at, Level: arith.Of(rule).Cost(number())}
			} else {
				id := at / widthUS(rule)
				last := func() time.Duration { return time.Duration(rng.Int64N(int64(arith.Of(rule).Width) + 1)) }
				op.Buckets = []report.Bucket{{ID: max(id-rng.Int64N(3), 0), Units: op.Units, Last: last()}}
				if rng.IntN(2) == 0 {
					op.BackBuckets = []report.Bucket{{ID: max(id-rng.Int64N(3), 0), Units: number(), Last: last()}}
				}
				op.Known = report.State{Gen: rng.Int64N(2) * at, Buckets: []report.Bucket{{ID: max(id-rng.Int64N(12), 0), Units: number(), Last: last()}}}
			}
			b.Ops = append(b.Ops, op)
		}
		c := store.encode(b)
		steps = append(steps, step{script: c.script, at: at, keys: c.keys, args: c.args})
		calls := everyCall(at+rng.Int64N(1000), rng.Int64N(12))
		steps = append(steps, calls[rng.IntN(len(calls))], calls[rng.IntN(len(calls))])
	}
	return steps
}
