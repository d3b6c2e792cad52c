package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/rig"
)

// world is the redis-server of a run.
type world struct {
	server *redistest.Server
	direct *redis.Client // of the soak itself, past all proxies
	prefix string
	keys   redisstore.Keyspace
	// mu is held by whoever asks the server, and by a fault during which it
	// cannot be asked.
	mu sync.Mutex
}

func newWorld(prefix string) (*world, error) {
	w := &world{prefix: prefix}
	var err error
	if w.keys, err = redisstore.NewKeyspace(prefix, 1); err != nil {
		return nil, err
	}
	if w.server, err = redistest.Launch(redistest.Options{}); err != nil {
		return nil, err
	}
	w.direct = rig.NewPatientClient(w.server.Addr())
	return w, nil
}

func (w *world) close() {
	w.direct.Close()
	w.server.Close()
}

// askTimeout bounds a question of the soak itself.
const askTimeout = 20 * time.Second

func (w *world) ask() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), askTimeout)
}

// ledgersScript reads the ledgers of all nodes, and in the same instant deletes
// one key, or all.
var ledgersScript = redis.NewScript(`
local out = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  out[#out + 1] = key
  out[#out + 1] = redis.call('GET', key)
end
if ARGV[2] == 'all' then
  redis.call('FLUSHALL')
elseif ARGV[2] ~= '' then
  redis.call('DEL', ARGV[2])
end
return out`)

// ledgers is what Redis has booked for each node by its own account.
type ledgers map[string]int64

// add adds the total of a ledger.
func (l ledgers) add(key, value string) error {
	total, err := rig.LedgerTotal(key, value)
	l[rig.LedgerNode(key)] += total
	return err
}

// ledgers reads all ledgers, and in the same instant removes a key, or "all".
// lost is what the ledgers held that are removed. w.mu is held.
func (w *world) ledgers(remove string) (all, lost ledgers, err error) {
	ctx, cancel := w.ask()
	defer cancel()
	list, err := ledgersScript.Run(ctx, w.direct, nil, rig.LedgerPattern(w.prefix), remove).StringSlice()
	if err != nil {
		return nil, nil, fmt.Errorf("reading the ledgers: %w", err)
	}
	all, lost = ledgers{}, ledgers{}
	for i := 0; i+1 < len(list); i += 2 {
		if err := all.add(list[i], list[i+1]); err != nil {
			return nil, nil, err
		}
		if list[i] == remove || remove == "all" {
			_ = lost.add(list[i], list[i+1]) // it was read a line above
		}
	}
	return all, lost, nil
}

// lastLedgers holds all writes and reads the ledgers: what comes next is the
// server's end. A script that writes would be held like the others, so it is
// done key by key. w.mu is held.
func (w *world) lastLedgers() (ledgers, error) {
	ctx, cancel := w.ask()
	defer cancel()
	if err := w.direct.Do(ctx, "client", "pause", askTimeout.Milliseconds(), "write").Err(); err != nil {
		return nil, err
	}
	keys, err := rig.Scan(ctx, w.direct, rig.LedgerPattern(w.prefix))
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	values, err := w.direct.MGet(ctx, keys...).Result()
	if err != nil {
		return nil, err
	}
	out := ledgers{}
	for i, v := range values {
		if text, ok := v.(string); ok {
			if err := out.add(keys[i], text); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// census is what is in Redis.
type census struct {
	keys    int // ledgers apart, which a crashed node leaves behind for a day
	ledgers int
	bytes   int64
	eternal []string // keys without a TTL: there must be none
}

// census counts all keys. w.mu is held.
func (w *world) census() (c census, err error) {
	ctx, cancel := w.ask()
	defer cancel()
	keys, err := rig.Scan(ctx, w.direct, "*")
	if err != nil {
		return c, err
	}
	pipe := w.direct.Pipeline()
	ttls := make([]*redis.DurationCmd, len(keys))
	for i, key := range keys {
		ttls[i] = pipe.PTTL(ctx, key)
	}
	info := pipe.Info(ctx, "memory")
	if _, err := pipe.Exec(ctx); err != nil {
		return c, err
	}
	for i, key := range keys {
		if ttls[i].Val() == -1 {
			c.eternal = append(c.eternal, key)
		}
		if strings.Contains(key, "}:node:") {
			c.ledgers++
		} else {
			c.keys++
		}
	}
	c.bytes = usedMemory(info.Val())
	return c, nil
}

func usedMemory(info string) int64 {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, "used_memory:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return n
		}
	}
	return 0
}

// key returns the name of an item's counter.
func (w *world) key(it item) string { return w.keys.CounterKey(it.rule, it.key) }

// poison puts something in the place of a counter that is none.
func (w *world) poison(key string) error {
	ctx, cancel := w.ask()
	defer cancel()
	_, err := w.direct.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, key)
		p.RPush(ctx, key, "not a counter")
		p.PExpire(ctx, key, time.Minute)
		return nil
	})
	return err
}

func (w *world) remove(key string) (bool, error) {
	ctx, cancel := w.ask()
	defer cancel()
	n, err := w.direct.Del(ctx, key).Result()
	return n > 0, err
}

// stored returns the units that Redis counts of an item: of a window those in
// buckets that begin at since or later (Redis' time, ns), of a funnel those that
// have not leaked yet.
func (w *world) stored(it item, since int64) (units float64, err error) {
	ctx, cancel := w.ask()
	defer cancel()
	value, err := w.direct.Get(ctx, w.key(it)).Result()
	if err == redis.Nil {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	now, err := w.direct.Time(ctx).Result()
	if err != nil {
		return 0, err
	}
	if f := strings.Fields(value); len(f) == 6 && f[0] == "f" { // generation, birth, denominator, empty at us, remainder
		us, err := strconv.ParseInt(f[4], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("counter %s holds %q: %w", w.key(it), value, err)
		}
		return max(float64(us-now.UnixMicro())*float64(arith.Of(it.rule).Units)/float64(it.rule.Period().Microseconds()), 0), nil
	}
	buckets, err := rig.Buckets(w.key(it), value)
	for _, b := range buckets {
		if b.ID*int64(arith.Of(it.rule).Width) >= since {
			units += float64(b.Units)
		}
	}
	return units, err
}
