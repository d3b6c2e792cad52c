package sim

import (
	"context"
	"errors"
	"net"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/report"
)

// luaRedis runs the real scripts, on a server of Redis, on what the model is
// told, and compares the answers. Its clock is the simulated server's.
type luaRedis struct {
	v     *simServer
	rdb   *redis.Client
	store *redisstore.Store
	free  func()
}

// luaHost finds an empty database for the length of a run, and says how it is given
// back.
type luaHost func() (where *redis.Options, free func())

// luaData is what there is of each key.
type luaData map[string]savedKey

// savedKey is a key's value, and when it expires by the server's clock, in µs; 0: never.
type savedKey struct {
	text string
	set  []redis.Z
	gone float64
}

// The server's own clock goes on in real time, so that the scripts are not to
// see it: what they do about time is done by luaTime, which is put in front of
// each. It keeps the time in one key, and in another when each key expires.
const (
	luaNow  = "!now"
	luaGone = "!gone"

	luaTime = `
local redis = (function(real)
  local now = tonumber(real.call('GET', '!now'))
  local function expires(key, ms)
    real.call('ZADD', '!gone', string.format('%.0f', now + ms * 1000), key)
  end
  local commands = {
    TIME = function()
      local us = now % 1000000
      return { string.format('%.0f', (now - us) / 1000000), string.format('%.0f', us) }
    end,
    PTTL = function(run, key)
      local at = real.call('ZSCORE', '!gone', key)
      return at and math.floor((tonumber(at) - now) / 1000) or run('PTTL', key)
    end,
    PEXPIRE = function(run, key, ms)
      local there = run('EXISTS', key)
      if there == 1 then
        expires(key, ms)
      end
      return there
    end,
    SET = function(run, key, value, px, ms, nx)
      if px ~= 'PX' or nx and nx ~= 'NX' then
        error('the simulator knows SET with PX and NX alone')
      end
      local done
      if nx then
        done = run('SET', key, value, nx)
      else
        done = run('SET', key, value)
      end
      if done and not done.err then
        expires(key, ms)
      end
      return done
    end,
  }
  local function timed(run)
    return function(name, ...)
      if commands[name] then
        return commands[name](run, ...)
      end
      return run(name, ...)
    end
  end
  return { call = timed(real.call), pcall = timed(real.pcall) }
end)(redis)
`
	// luaTick sets the time, and removes what has expired by it.
	luaTick = `
redis.call('SET', '!now', ARGV[1])
for _, key in ipairs(redis.call('ZRANGEBYSCORE', '!gone', '-inf', ARGV[1])) do
  redis.call('DEL', key)
  redis.call('ZREM', '!gone', key)
end`
)

func newLuaRedis(v *simServer, host luaHost) *luaRedis {
	where, free := host()
	where.DisableIdentity = true
	where.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	where.PoolSize = 1
	l := &luaRedis{v: v, rdb: redis.NewClient(where), free: free}
	l.rdb.AddHook(redistest.NewFront(luaTime, luaTick))
	var err error
	if l.store, err = redisstore.NewStore(l.rdb, redisstore.Options{Shards: v.s.opt.Shards, CommandTimeout: time.Minute}); err != nil {
		panic(err)
	}
	l.wipe()
	return l
}

// miniHost is a Redis in Go, one for each.
func miniHost() (*redis.Options, func()) {
	m := miniredis.NewMiniRedis()
	dial := func(context.Context, string, string) (net.Conn, error) { return m.Dial() }
	return &redis.Options{Addr: "127.0.0.1:6379", Dialer: dial}, m.Close // the address is never dialled
}

// realHost is a redis-server with as many databases as are in use at a time.
func realHost(t *testing.T) luaHost {
	most := 4 * runtime.GOMAXPROCS(0)
	srv := redistest.Start(t, "--databases", strconv.Itoa(most))
	empty := make(chan int, most)
	for i := range most {
		empty <- i
	}
	return func() (*redis.Options, func()) {
		db := <-empty
		return &redis.Options{Addr: srv.Addr(), DB: db}, func() { empty <- db }
	}
}

func (l *luaRedis) close() {
	l.rdb.Close()
	l.free()
}

// at sets the clock.
func (l *luaRedis) at(now int64) {
	l.check(l.rdb.Eval(context.Background(), luaTick, nil, now/1000).Err())
}

func (l *luaRedis) check(err error) {
	if err != nil && !errors.Is(err, redis.Nil) {
		l.v.s.failf("the Redis beside the model: %v", err)
	}
}

func (l *luaRedis) compareExec(now int64, b *redisstore.Batch, want redisstore.Outcome) {
	l.at(now)
	out, _ := l.store.Exec(context.Background(), []*redisstore.Batch{b}, nil)
	got := out[0]
	l.check(got.Err)
	plain := func(r redisstore.Reply) redisstore.Reply {
		r.States = append([]report.State(nil), r.States...) // nil if there are none
		for i := range r.States {
			st := &r.States[i]
			if len(st.Buckets) == 0 {
				st.Buckets = nil
			}
			if st.Err != nil {
				st.Err = errors.New("unusable") // in other words
			}
		}
		return r
	}
	if g, w := plain(got.Reply), plain(want.Reply); !reflect.DeepEqual(g, w) {
		l.v.s.failf("the scripts and the model disagree on %+v\nscripts: %+v\nmodel:   %+v", b, g, w)
	}
}

func (l *luaRedis) compareBeat(node string, want redisstore.Beat) {
	l.at(int64(want.Now))
	b, err := l.store.Beat(context.Background(), node, 3*l.v.s.opt.HeartbeatInterval, nil, redisstore.BeatOptions{})
	l.check(err)
	if b.Nodes != want.Nodes || b.Now != want.Now || !slices.Equal(b.Others, want.Others) {
		l.v.s.failf("the script counts %d nodes at %v beside %q, the model %d at %v beside %q", b.Nodes, b.Now, b.Others, want.Nodes, want.Now, want.Others)
	}
}

// compareSeq asks the shard alone: the beat that comes with it is of a node
// that lives for no time.
func (l *luaRedis) compareSeq(now int64, shard int, node string, seq int64) {
	l.at(now)
	nodes := l.keep(l.v.s.keyspace().NodesKey())
	b, err := l.store.Beat(context.Background(), node, time.Millisecond, []int{shard}, redisstore.BeatOptions{})
	l.check(err)
	l.put(l.v.s.keyspace().NodesKey(), nodes)
	if b.Seqs[0] != seq || int64(b.Times[0]) != now {
		l.v.s.failf("the script knows batch %d of %s, the model %d", b.Seqs[0], node, seq)
	}
}

func (l *luaRedis) wipe() { l.check(l.rdb.FlushDB(context.Background()).Err()) }

// keep reads a key, so that put can bring it back.
func (l *luaRedis) keep(key string) (k savedKey) {
	ctx := context.Background()
	kind, err := l.rdb.Type(ctx, key).Result()
	l.check(err)
	switch kind {
	case "string":
		k.text, err = l.rdb.Get(ctx, key).Result()
	case "zset":
		k.set, err = l.rdb.ZRangeWithScores(ctx, key, 0, -1).Result()
	}
	l.check(err)
	k.gone, err = l.rdb.ZScore(ctx, luaGone, key).Result()
	l.check(err)
	return k
}

func (l *luaRedis) put(key string, k savedKey) {
	ctx := context.Background()
	l.forget(key)
	if k.text != "" {
		l.check(l.rdb.Set(ctx, key, k.text, 0).Err())
	}
	if k.set != nil {
		l.check(l.rdb.ZAdd(ctx, key, k.set...).Err())
	}
	if k.gone > 0 {
		l.check(l.rdb.ZAdd(ctx, luaGone, redis.Z{Score: k.gone, Member: key}).Err())
	}
}

func (l *luaRedis) save() luaData {
	l.at(l.v.time())
	saved := luaData{}
	keys, err := l.rdb.Keys(context.Background(), "*").Result()
	l.check(err)
	for _, key := range keys {
		if key == luaNow || key == luaGone {
			continue
		}
		if k := l.keep(key); k.gone != 0 { // what is not ours has no TTL, and does not come back
			saved[key] = k
		}
	}
	return saved
}

func (l *luaRedis) rollback(saved luaData) {
	l.wipe()
	for key, k := range saved {
		l.put(key, k)
	}
	l.at(l.v.time())
}

func (l *luaRedis) forget(key string) {
	ctx := context.Background()
	l.check(l.rdb.Del(ctx, key).Err())
	l.check(l.rdb.ZRem(ctx, luaGone, key).Err())
}

func (l *luaRedis) poison(key string, on bool) {
	l.forget(key)
	if on {
		l.check(l.rdb.Set(context.Background(), key, "somebody else's", 0).Err())
	}
}

func (l *luaRedis) flushScripts() { l.check(l.rdb.ScriptFlush(context.Background()).Err()) }

func (l *luaRedis) compareRenew(now int64, k oracleKey, used int64, want redisstore.Renewed) {
	l.at(now)
	st, err := redisstore.NewStore(l.rdb, redisstore.Options{Shards: l.v.s.opt.Shards, CommandTimeout: time.Minute})
	l.check(err)
	got, err := st.Renew(context.Background(), k.key, k.rule, used)
	l.check(err)
	if !reflect.DeepEqual(got, want) {
		l.v.s.failf("the scripts and the model disagree on a key that is set: %+v, %+v", got, want)
	}
}

func (l *luaRedis) compareTake(now int64, asks []redisstore.Ask, book bool, want redisstore.Taken) {
	l.at(now)
	mode := redisstore.BookState
	if !book {
		mode = redisstore.LookState
	}
	got, _, err := l.store.Take(context.Background(), mode, asks...)
	l.check(err)
	differ := got.Booked != want.Booked || got.Now != want.Now
	for i := range got.Answers {
		g, w := &got.Answers[i], &want.Answers[i]
		if len(w.State.Buckets) == 0 {
			w.State.Buckets = nil
		}
		differ = differ || g.Units != w.Units || !reflect.DeepEqual(g.State, w.State)
	}
	if differ {
		l.v.s.failf("the scripts and the model disagree on %+v\nscripts: %+v\nmodel:   %+v", asks, got, want)
	}
}
