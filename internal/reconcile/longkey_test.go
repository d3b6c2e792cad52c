package reconcile

import (
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A counter names its key in Redis as limiters without counters do, of any length, and no two
// keys alike.
func TestKeysOfAnyLengthHaveOneName(t *testing.T) {
	if counter.MaxKey != redisstore.MaxKeyBytes {
		t.Fatalf("counters keep keys up to %d bytes, Redis up to %d", counter.MaxKey, redisstore.MaxKeyBytes)
	}
	ks, err := redisstore.NewKeyspace("p", 16)
	if err != nil {
		t.Fatal(err)
	}
	rule := limit.Must(limit.FixedWindow("r", 5, time.Minute))
	link := counter.NewLink(counter.Pace{Interval: time.Second, MaxLag: time.Second}, 16, ks.Shard)
	c := &Machine{keys: ks}
	names := map[string]int{}
	for _, n := range []int{0, 1, 18, 19, 64, 65, 255, 256, 257, 1 << 20} {
		key := strings.Repeat("k", n)
		sum, _ := counter.KeyOf(key + strings.Repeat("x", 257))
		for _, k := range []string{key, sum} {
			want := ks.CounterKey(rule, k)
			if got := c.nameOf(counter.New(k, rule, 0, &counter.Group{Link: link}, 0), rule); got != want {
				t.Errorf("a key of %d bytes is %q, and %q to the remote limiter", len(k), got, want)
			}
			names[want]++
		}
	}
	if len(names) != 20 {
		t.Errorf("%d names of 20 keys", len(names))
	}
}
