// Command allow admits a user five times a minute. In a clone: go run ./examples/allow.
package main

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

var perUser = limit.Must(limit.PerMinute("api", 5)) // made once, not for each request

func main() {
	logging.Disable() // go-redis would write a line for each connection that fails
	rdb := redis.NewClient(hybrid.RedisOptions("localhost:6379"))
	lim := limit.Must(hybrid.New(rdb, hybrid.Options{})) // one for the process; works without Redis
	defer lim.Close()                                    // reports what is pending
	for range 8 {
		fmt.Println(lim.Allow("alice", perUser))
		time.Sleep(100 * time.Millisecond)
	}
}
