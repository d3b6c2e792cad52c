package hybrid

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// clientTimeout bounds a dial, a read and a write of a client with the recommended settings.
// It is the longest deadline of a call with the default of [Options].CommandTimeout: each call has
// a deadline of its own, and a connection to a server that is far away takes several round trips
// to make.
const clientTimeout = redisstore.MostPatience * redisstore.DefaultCommandTimeout

// RedisOptions returns go-redis options for a single server with the recommended settings:
// deadlines hold, nothing is sent twice, and a server that does not answer is given up
// soon. Add a password, TLS and the like.
func RedisOptions(addr string) *redis.Options {
	return &redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1,
		DialTimeout: clientTimeout, ReadTimeout: clientTimeout, WriteTimeout: clientTimeout, DialerRetries: 1,
		DisableIdentity: true, MaintNotificationsConfig: noNotices(),
	}
}

// RedisFailoverOptions is [RedisOptions] for a Sentinel group: the name of its master and
// the addresses of its sentinels.
func RedisFailoverOptions(master string, sentinels ...string) *redis.FailoverOptions {
	return &redis.FailoverOptions{
		MasterName: master, SentinelAddrs: sentinels, ContextTimeoutEnabled: true, MaxRetries: -1,
		DialTimeout: clientTimeout, ReadTimeout: clientTimeout, WriteTimeout: clientTimeout, DialerRetries: 1,
		DisableIdentity: true,
	}
}

// RedisClusterOptions is [RedisOptions] for a Redis Cluster: the addresses of some of its
// servers. A pipeline that includes a dead master does not delay the others.
func RedisClusterOptions(addrs ...string) *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs: addrs, ContextTimeoutEnabled: true, MaxRetries: -1, MinRetryBackoff: -1, MaxRetryBackoff: -1,
		DialTimeout: clientTimeout, ReadTimeout: clientTimeout, WriteTimeout: clientTimeout, DialerRetries: 1,
		DisableIdentity: true, MaintNotificationsConfig: noNotices(),
	}
}

// noNotices switches off go-redis' notices of maintenance: to ask a server for them takes round trips.
func noNotices() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// faultsOf returns what is wrong with the settings of a client. timeout is the CommandTimeout of the
// limiter. It returns nothing for a client of another type, whose settings cannot be read.
func faultsOf(rdb redis.UniversalClient, timeout time.Duration) (faults []string) {
	var bounded bool
	var retries, dials int
	var dial, read, write time.Duration
	switch c := rdb.(type) {
	case *redis.Client: // of Sentinel, too
		o := c.Options()
		bounded, retries, dials, dial, read, write = o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries, o.DialTimeout, o.ReadTimeout, o.WriteTimeout
	case *redis.ClusterClient:
		o := c.Options()
		bounded, retries, dials, dial, read, write = o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries, o.DialTimeout, o.ReadTimeout, o.WriteTimeout
	case *redis.Ring:
		o := c.Options()
		bounded, retries, dials, dial, read, write = o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries, o.DialTimeout, o.ReadTimeout, o.WriteTimeout
	default:
		return nil
	}
	for _, t := range []struct {
		name string
		is   time.Duration
	}{{"DialTimeout", dial}, {"ReadTimeout", read}, {"WriteTimeout", write}} {
		if 0 < t.is && t.is < timeout {
			faults = append(faults, fmt.Sprintf("%s is %v, less than the CommandTimeout of %v: the client gives up a server that is far away before this limiter does", t.name, t.is, timeout))
		}
	}
	if !bounded {
		faults = append(faults, "ContextTimeoutEnabled is false: deadlines do not bound reads and writes, so that a call to a server that does not answer takes as long as the client's own time-outs")
	}
	if retries > 0 {
		faults = append(faults, fmt.Sprintf("MaxRetries is %d: a command that the program itself sends by this client may be executed more than once; commands of this limiter are never repeated by the client", retries))
	}
	if dials > 1 {
		faults = append(faults, fmt.Sprintf("DialerRetries is %d: a server that refuses connections or cannot be found looks like one that does not answer", dials))
	}
	return faults
}
