package hybrid

import (
	"context"
	"fmt"
	"maps"
	"net"
	"reflect"
	"slices"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/hybridlimit/hybridlimit/remote"
)

// luaRedis runs the real scripts, in miniredis, on what the model is told, and
// compares the answers. Its clock is the simulated server's.
type luaRedis struct {
	v     *simServer
	mini  *miniredis.Miniredis
	rdb   *redis.Client
	store *remote.Store
}

// luaData is what there is of each key.
type luaData map[string]savedKey

// savedKey is a key's value, and when it expires by the server's clock.
type savedKey struct {
	text string
	set  map[string]float64
	gone int64
}

func newLuaRedis(v *simServer) *luaRedis {
	l := &luaRedis{v: v, mini: miniredis.NewMiniRedis()}
	l.mini.ClockTTL(true)
	l.rdb = redis.NewClient(&redis.Options{
		Addr:                     "127.0.0.1:6379", // never dialled
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return l.mini.Dial() },
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		PoolSize:                 1,
	})
	var err error
	if l.store, err = remote.NewStore(l.rdb, remote.Options{Shards: v.s.opt.Shards, CommandTimeout: time.Minute}); err != nil {
		panic(err)
	}
	return l
}

func (l *luaRedis) close() {
	l.rdb.Close()
	l.mini.Close()
}

// at sets the clock.
func (l *luaRedis) at(now int64) { l.mini.SetTime(time.Unix(0, now)) }

func (l *luaRedis) check(err error) {
	if err != nil {
		l.v.s.failf("miniredis: %v", err)
	}
}

func (l *luaRedis) compareExec(now int64, b *remote.Batch, want remote.Outcome) {
	l.at(now)
	got := l.store.Exec(context.Background(), []*remote.Batch{b})[0]
	l.check(got.Err)
	plain := func(r remote.Reply) remote.Reply {
		r.States = slices.Clone(r.States)
		for i := range r.States {
			st := &r.States[i]
			if len(st.Buckets) == 0 {
				st.Buckets = nil
			}
			if st.Err != nil {
				st.Err = fmt.Errorf("booked %v", st.Err.(*remote.KeyError).Booked) // in other words
			}
		}
		return r
	}
	if g, w := plain(got.Reply), plain(want.Reply); !reflect.DeepEqual(g, w) {
		l.v.s.failf("the scripts and the model disagree on %+v\nscripts: %+v\nmodel:   %+v", b, g, w)
	}
}

func (l *luaRedis) compareBeat(now int64, node string, nodes int) {
	l.at(now)
	b, err := l.store.Beat(context.Background(), node, 3*l.v.s.opt.HeartbeatInterval, nil)
	l.check(err)
	if b.Nodes != nodes || int64(b.Now) != now {
		l.v.s.failf("the script counts %d nodes at %v, the model %d at %v", b.Nodes, int64(b.Now), nodes, now)
	}
}

// compareSeq asks the shard alone: the beat that comes with it is of a node
// that lives for no time.
func (l *luaRedis) compareSeq(now int64, shard int, node string, seq int64) {
	l.at(now)
	nodes := l.keep(l.v.s.keyspace().NodesKey())
	b, err := l.store.Beat(context.Background(), node, time.Millisecond, []int{shard})
	l.check(err)
	l.put(l.v.s.keyspace().NodesKey(), nodes)
	if b.Seqs[0] != seq || int64(b.Times[0]) != now {
		l.v.s.failf("the script knows batch %d of %s, the model %d", b.Seqs[0], node, seq)
	}
}

func (l *luaRedis) wipe() { l.mini.FlushAll() }

// keep reads a key, so that put can bring it back.
func (l *luaRedis) keep(key string) savedKey {
	k := savedKey{gone: l.v.time() + int64(l.rdb.PTTL(context.Background(), key).Val())}
	switch l.mini.Type(key) {
	case "string":
		k.text, _ = l.mini.Get(key)
	case "zset":
		set, _ := l.mini.SortedSet(key)
		k.set = maps.Clone(set) // it is miniredis' own
	}
	return k
}

func (l *luaRedis) put(key string, k savedKey) {
	l.mini.Del(key)
	left := time.Duration(k.gone - l.v.time())
	if left <= 0 || k.text == "" && k.set == nil {
		return
	}
	if k.text != "" {
		l.check(l.mini.Set(key, k.text))
	}
	for node, score := range k.set {
		_, err := l.mini.ZAdd(key, score, node)
		l.check(err)
	}
	l.rdb.PExpire(context.Background(), key, max(left, time.Millisecond))
}

func (l *luaRedis) save() luaData {
	l.at(l.v.time())
	saved := luaData{}
	for _, key := range l.mini.Keys() {
		saved[key] = l.keep(key)
	}
	return saved
}

func (l *luaRedis) rollback(saved luaData) {
	l.at(l.v.time())
	l.mini.FlushAll()
	for key, k := range saved {
		l.put(key, k)
	}
}

// expire has miniredis look at every key by its new time.
func (l *luaRedis) expire(now int64) {
	l.at(now)
	for _, key := range l.mini.Keys() {
		l.rdb.PTTL(context.Background(), key)
	}
}

func (l *luaRedis) forget(key string) { l.mini.Del(key) }

func (l *luaRedis) poison(key string, on bool) {
	l.mini.Del(key)
	if on {
		l.check(l.mini.Set(key, "somebody else's"))
	}
}

func (l *luaRedis) flushScripts() { l.check(l.rdb.ScriptFlush(context.Background()).Err()) }

func (l *luaRedis) compareRenew(now int64, k oracleKey, used int64, want remote.Renewed) {
	l.at(now)
	st, err := remote.NewStore(l.rdb, remote.Options{Shards: l.v.s.opt.Shards, CommandTimeout: time.Minute})
	l.check(err)
	got, err := st.Renew(context.Background(), k.key, k.rule, used)
	l.check(err)
	if !reflect.DeepEqual(got, want) {
		l.v.s.failf("the scripts and the model disagree on a key that is set: %+v, %+v", got, want)
	}
}
