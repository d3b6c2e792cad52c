package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// How long one check takes from a client's point of view, over loopback. The servers are
// processes of their own, as Redis is. One client asks, one question at a time.
//
//	go test -run '^$' -bench Server -benchtime 20000x ./internal/server
//
// p50 and p99 are what to look at; ns/op is the mean.

// child is the environment variable that makes the test binary a server: the address of its
// Redis.
const child = "HYBRIDLIMIT_BENCH_REDIS"

// serveAsChild serves until its input ends, and says first where it listens.
func serveAsChild(addr string) error {
	dir, err := os.MkdirTemp("", "hybridlimit")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o := Options{RulesPath: filepath.Join(dir, "rules.yaml"), Redis: redis.NewClient(hybrid.RedisOptions(addr))}
	if err := os.WriteFile(o.RulesPath, []byte(benchRules), 0o600); err != nil {
		return err
	}
	for _, ln := range []*net.Listener{&o.GRPC, &o.RESP} {
		if *ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
		fmt.Println((*ln).Addr())
	}
	s, err := Start(o)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return s.Stop()
}

const benchRules = `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 2000000000}}
...
`

// startChild starts a server and returns where gRPC and RESP are.
func startChild(b *testing.B, redisAddr string) (rls, resp string) {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), child+"="+redisAddr)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	lines := bufio.NewReader(out)
	for _, into := range []*string{&rls, &resp} {
		line, err := lines.ReadString('\n')
		if err != nil {
			b.Fatal(err)
		}
		*into = strings.TrimSpace(line)
	}
	return rls, resp
}

const benchKeys = 1000

// askers returns by name what asks for a unit of a key.
func askers(b *testing.B, redisAddr string) map[string]func(key string) error {
	ctx := b.Context()
	rlsAddr, respAddr := startChild(b, redisAddr)
	client := func(addr string) *redis.Client {
		c := redis.NewClient(hybrid.RedisOptions(addr))
		b.Cleanup(func() { c.Close() })
		return c
	}
	cc, err := grpc.NewClient(rlsAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cc.Close() })
	rls, resp, direct := ratelimit.NewRateLimitServiceClient(cc), client(respAddr), client(redisAddr)
	rate := redis_rate.NewLimiter(direct)
	perHour := redis_rate.Limit{Rate: 2_000_000_000, Burst: 2_000_000_000, Period: time.Hour}
	return map[string]func(string) error{
		"rls": func(key string) error {
			_, err := rls.ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{
				Domain:      "d",
				Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: key}}}},
			})
			return err
		},
		"resp": func(key string) error {
			return resp.Do(ctx, "CL.THROTTLE", key, 2_000_000_000, 2_000_000_000, 3600).Err()
		},
		"redis_rate": func(key string) error {
			_, err := rate.Allow(ctx, key, perHour)
			return err
		},
		"redis_get": func(key string) error { // the least that any answer of Redis takes
			if err := direct.Get(ctx, key).Err(); err != redis.Nil {
				return err
			}
			return nil
		},
	}
}

func BenchmarkServer(b *testing.B) {
	server := redistest.Start(b)
	ask := askers(b, server.Addr())
	keys := make([]string, benchKeys)
	for i := range keys {
		keys[i] = fmt.Sprint("user:", i)
	}
	for _, name := range []string{"rls", "resp", "redis_rate", "redis_get"} {
		b.Run(name, func(b *testing.B) {
			for _, key := range keys { // connections, scripts and counters
				if err := ask[name](key); err != nil {
					b.Fatal(err)
				}
			}
			took := make(latencies, 0, b.N)
			for i := 0; b.Loop(); i++ {
				began := time.Now()
				if err := ask[name](keys[i%benchKeys]); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			took.report(b)
		})
	}
}

// latencies is how long answers took.
type latencies []time.Duration

// at returns the quantile p.
func (l latencies) at(p float64) time.Duration {
	slices.Sort(l)
	return l[min(len(l)-1, int(p*float64(len(l))))]
}

// report reports p50, p99 and the maximum in microseconds.
func (l latencies) report(b *testing.B) {
	for name, p := range map[string]float64{"p50-µs": 0.5, "p99-µs": 0.99, "max-µs": 1} {
		b.ReportMetric(float64(l.at(p).Nanoseconds())/1000, name)
	}
}
