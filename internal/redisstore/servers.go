package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Servers returns for each shard the address of the server that holds it, as far as the
// client knows it, and "" where it does not. The address of a Sentinel group is the same
// whichever server is the master. A client that is neither a [redis.Client], a
// [redis.ClusterClient] nor a [redis.Ring], nor embeds one, knows none.
//
// It rarely uses the network: only if a client of a Cluster has not asked yet where the
// slots are. Then it waits for a quarter of the CommandTimeout at the most.
func (s *Store) Servers(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(given(ctx), s.timeout/4)
	defer cancel()
	addrs := make([]string, s.keys.Shards())
	for i := range addrs {
		_ = guarded(func() (err error) { // after a panic of a foreign client it stays unknown
			addrs[i], err = addrOf(ctx, s.rdb, s.keys.SeqKey(i, "-"))
			return err
		})
	}
	return addrs
}

// addrOf returns the address of the server that holds a key; "" if it is unknown.
func addrOf(ctx context.Context, rdb redis.UniversalClient, key string) (string, error) {
	var c interface{ Options() *redis.Options }
	var err error
	switch rdb := rdb.(type) {
	case interface{ Options() *redis.Options }: // a single server's
		c = rdb
	case interface {
		MasterForKey(context.Context, string) (*redis.Client, error)
	}: // a Cluster's
		c, err = rdb.MasterForKey(ctx, key)
	case interface {
		GetShardClientForKey(string) (*redis.Client, error)
	}: // a Ring's
		c, err = rdb.GetShardClientForKey(key)
	}
	if err != nil || c == nil {
		return "", err
	}
	return c.Options().Addr, nil
}

// Dials returns how often the client had no free connection and made one, for any of its users. With a
// client of a Cluster it uses the network if no call has succeeded yet.
func (s *Store) Dials() (n uint32) {
	_ = guarded(func() error { // after a panic of a foreign client it stays 0
		if p := s.rdb.PoolStats(); p != nil {
			n = p.Misses
			if p.PipelineStats != nil {
				n += p.PipelineStats.Misses
			}
		}
		return nil
	})
	return n
}
