package inspect

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

const (
	// scanCount is how many keys one SCAN examines, which takes Redis well below a
	// millisecond.
	scanCount = 1000
	// surveyCalls is how many counters are read in one pipeline.
	surveyCalls = 200
)

// Survey is a store for tools that read what is kept in Redis. Its own methods write nothing.
// Build one with [New]; the zero Survey is not usable. It is safe for concurrent use, and does
// not close the client.
type Survey struct {
	*redisstore.Store
	rdb redis.UniversalClient
}

// New returns a survey that uses rdb. It does not call Redis yet. The error names
// every problem of the options. The CommandTimeout is that of each single call to Redis.
func New(rdb redis.UniversalClient, o redisstore.Options) (*Survey, error) {
	store, err := redisstore.NewStore(rdb, o)
	if err != nil {
		return nil, err
	}
	return &Survey{store, rdb}, nil
}

// Scanned says how much of Redis was examined.
type Scanned struct {
	// Keys is about how many of Total keys were examined, counters or not.
	Keys, Total int64
	// Complete is set if all were.
	Complete bool
	// Counters is how many of them are counters, Foreign how many look like counters of
	// a layout with another number of shards.
	Counters, Foreign int64
}

// Scan looks for counters among about most keys of all masters together, and passes them to
// found, each once, many at a time. It stops at an error of found, which it returns.
// Counters that are created meanwhile may be missed.
//
// It never blocks Redis for longer than it takes to examine a thousand keys.
func (s *Survey) Scan(ctx context.Context, most int64, found func([]Name) error) (Scanned, error) {
	masters, err := s.Masters(ctx)
	if err != nil {
		return Scanned{}, err
	}
	out := Scanned{Complete: true}
	for i, m := range masters {
		share := most / int64(len(masters)-i) // of what is left, so that all of it is used
		one, err := s.scanOne(ctx, m, share, found)
		out.Keys, out.Total = out.Keys+one.Keys, out.Total+one.Total
		out.Counters, out.Foreign = out.Counters+one.Counters, out.Foreign+one.Foreign
		out.Complete = out.Complete && one.Complete
		if err != nil {
			return out, err
		}
		most -= one.Keys
	}
	return out, nil
}

// scanOne is Scan of one server.
func (s *Survey) scanOne(ctx context.Context, rdb redis.UniversalClient, most int64, found func([]Name) error) (out Scanned, err error) {
	err = s.Within(ctx, func(ctx context.Context) error {
		out.Total, err = rdb.DBSize(ctx).Result()
		return err
	})
	seen := map[string]bool{} // a SCAN may find a key twice
	for cursor := uint64(0); err == nil; {
		var texts []string
		err = s.Within(ctx, func(ctx context.Context) error {
			texts, cursor, err = rdb.Scan(ctx, cursor, Pattern(s.Keyspace()), scanCount).Result()
			return err
		})
		if err != nil {
			break
		}
		out.Keys = min(out.Keys+scanCount, max(out.Total, 0))
		var names []Name
		for _, text := range texts {
			n, ours := Parse(s.Keyspace(), text)
			switch {
			case seen[text]:
			case ours:
				names = append(names, n)
			default:
				out.Foreign++
			}
			seen[text] = true
		}
		out.Counters += int64(len(names))
		if len(names) > 0 {
			if err := found(names); err != nil {
				return out, err
			}
		}
		if cursor == 0 {
			out.Keys, out.Complete = out.Total, true
			return out, nil
		}
		if out.Keys >= most {
			return out, nil
		}
	}
	return out, err
}

// Prefixes returns under which prefixes nodes have used this Redis in the last day, in order. It examines
// about most keys, and finds what is among them.
func (s *Survey) Prefixes(ctx context.Context, most int64) ([]string, error) {
	none, _ := redisstore.NewKeyspace("-", 1)
	end := none.LayoutsKey()[1:]
	masters, err := s.Masters(ctx)
	found := map[string]bool{}
	for _, m := range masters {
		for cursor, seen := uint64(0), int64(0); err == nil; seen += scanCount {
			var keys []string
			err = s.Within(ctx, func(ctx context.Context) error {
				keys, cursor, err = m.Scan(ctx, cursor, "*"+end, scanCount).Result()
				return err
			})
			for _, key := range keys {
				found[strings.TrimSuffix(key, end)] = true
			}
			if cursor == 0 || seen >= most {
				break
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), err
}

// Masters returns a client for each server that takes writes, in the order of their
// addresses.
func (s *Survey) Masters(ctx context.Context) (list []redis.UniversalClient, err error) {
	var each func(context.Context, func(context.Context, *redis.Client) error) error
	switch rdb := s.rdb.(type) {
	case interface {
		ForEachMaster(context.Context, func(context.Context, *redis.Client) error) error
	}:
		each = rdb.ForEachMaster
	case interface {
		ForEachShard(context.Context, func(context.Context, *redis.Client) error) error
	}:
		each = rdb.ForEachShard
	default:
		return []redis.UniversalClient{s.rdb}, nil
	}
	var mu sync.Mutex // protects found: each runs several callbacks at once
	var found []*redis.Client
	err = s.Within(ctx, func(ctx context.Context) error {
		return each(ctx, func(_ context.Context, c *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			found = append(found, c)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b *redis.Client) int { return cmp.Compare(a.Options().Addr, b.Options().Addr) })
	for _, c := range found {
		list = append(list, c)
	}
	return list, nil
}

// Look asks for the state of a counter under a rule, for which [Name.Of] must report true.
type Look struct {
	Name Name
	Rule *limit.Rule
}

// Peek answers looks in their order, many with one pipeline.
func (s *Survey) Peek(ctx context.Context, looks []Look) []redisstore.Seen {
	out := make([]redisstore.Seen, 0, len(looks))
	for some := range slices.Chunk(looks, surveyCalls) {
		asks := make([]redisstore.Ask, len(some))
		for i, l := range some {
			asks[i] = redisstore.Ask{Counter: l.Name.Text, Rule: l.Rule, Units: 1}
		}
		out = append(out, s.LookAt(ctx, asks)...)
	}
	return out
}
