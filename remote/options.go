package remote

import "time"

// Options says how Redis is used. The zero value is ready for use.
type Options struct {
	// KeyPrefix begins the name of every key in Redis. At most 64 bytes, no '{' and
	// no '}'. Default "hl". Processes that share counters must agree on it.
	KeyPrefix string
	// Shards is the number of groups of keys, 1 to 1024. Default 1 for a single server
	// and a Sentinel group, 64 for all others. A script works within one shard, and on
	// a Redis Cluster a shard is on one master. It is a constant of the deployment:
	// processes with another number do not share counters.
	Shards int
	// CommandTimeout is the deadline of every call to Redis, a reload of the
	// scripts included. Default 250 ms.
	//
	// go-redis applies a deadline to the wait for a reply only if the client was
	// built with ContextTimeoutEnabled. Without it, the client's own ReadTimeout
	// applies instead.
	CommandTimeout time.Duration
}
