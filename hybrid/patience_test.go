package hybrid

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A client that gives up before the limiter does is warned of, one with the recommended settings is not.
func TestShortTimeOutsOfAClient(t *testing.T) {
	o := RedisOptions("127.0.0.1:1")
	good := redis.NewClient(o)
	defer func() { _ = good.Close() }()
	if faults := faultsOf(good, 250*time.Millisecond); len(faults) > 0 {
		t.Errorf("%q", faults)
	}
	o = RedisOptions("127.0.0.1:1")
	o.ReadTimeout = 100 * time.Millisecond
	bad := redis.NewClient(o)
	defer func() { _ = bad.Close() }()
	if faults := faultsOf(bad, 250*time.Millisecond); len(faults) != 1 || !strings.Contains(faults[0], "ReadTimeout is 100ms") {
		t.Errorf("%q", faults)
	}
}
