package bench

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/rig"
	"github.com/hybridlimit/hybridlimit/limit"
)

// redisRules are what is measured against Redis. Their limits are never
// reached, so that each check is booked. The funnel leaks slowly: a unit that has
// leaked before Redis hears of it leaves nothing to be written, which is cheap.
var redisRules = []*limit.Rule{
	limit.Must(limit.TokenBucket("funnel", 100, time.Minute, 1_000_000)),
	limit.Must(limit.SlidingWindow("sliding", 1_000_000_000, time.Minute)),
}

// judge is a real redis-server with a client of the benchmark's own.
type judge struct {
	server *redistest.Server
	rdb    *redis.Client
}

// startRedis starts a server for the length of a benchmark, which is skipped
// where there is none (and fails under CI=true).
func startRedis(b *testing.B) judge {
	b.Helper()
	j := judge{server: redistest.Start(b)}
	j.rdb = rig.NewPatientClient(j.server.Addr())
	b.Cleanup(func() { j.rdb.Close() })
	return j
}

// ledger is what a server says of its own work since it was last reset.
type ledger struct {
	inScript time.Duration // spent in them
	inPlain  time.Duration // spent in GET and SET, also where scripts give them
	in, out  float64       // bytes
	cpu      time.Duration // of the whole process: reading and writing included
}

// reset begins a new account. The processor's time cannot be reset: read
// returns it since the start of the server.
func (j judge) reset(b *testing.B) {
	b.Helper()
	if err := j.rdb.ConfigResetStat(context.Background()).Err(); err != nil {
		b.Fatal(err)
	}
}

func (j judge) read(b *testing.B) (l ledger) {
	b.Helper()
	commands := j.info(b, "commandstats")
	for _, name := range []string{"cmdstat_evalsha", "cmdstat_eval", "cmdstat_get", "cmdstat_set"} {
		script := strings.HasPrefix(name, "cmdstat_eval")
		for field := range strings.SplitSeq(commands[name], ",") {
			if value, ok := strings.CutPrefix(field, "usec="); !ok {
				continue
			} else if usec := time.Duration(number(b, value)) * time.Microsecond; script {
				l.inScript += usec
			} else {
				l.inPlain += usec
			}
		}
	}
	stats, cpu := j.info(b, "stats"), j.info(b, "cpu")
	l.in, l.out = number(b, stats["total_net_input_bytes"]), number(b, stats["total_net_output_bytes"])
	l.cpu = time.Duration((number(b, cpu["used_cpu_user"]) + number(b, cpu["used_cpu_sys"])) * float64(time.Second))
	return l
}

func (j judge) info(b *testing.B, section string) map[string]string {
	b.Helper()
	fields, err := j.server.Info(section)
	if err != nil {
		b.Fatal(err)
	}
	return fields
}

func number(b *testing.B, text string) float64 {
	b.Helper()
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		b.Fatalf("INFO: %v", err)
	}
	return f
}

// node starts a limiter that reconciles with the server, and waits until it
// has heard from it.
func (j judge) node(b *testing.B, o hybrid.Options) *hybrid.Limiter {
	b.Helper()
	rdb := rig.NewClient(j.server.Addr())
	b.Cleanup(func() { rdb.Close() })
	l, err := hybrid.New(rdb, o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		_ = l.Shutdown(ctx) // says what it could not report
	})
	pollUntil(b, 10*time.Second, "the limiter is synced", func() bool { return l.State().Mode == hybrid.Synced })
	return l
}

// pollUntil polls until cond holds, and ends the benchmark if it does not within d.
func pollUntil(tb testing.TB, d time.Duration, what string, cond func() bool) {
	tb.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(d); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			tb.Fatalf("after %v still not: %s", d, what)
		}
	}
}
