package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(child); addr != "" { // a server of a benchmark
		if err := serveAsChild(addr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial))
}

// patience bounds what must happen at once, on any machine.
const patience = time.Minute

// eventually waits until a condition holds that goroutines or other processes bring about.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v still not: %s", patience, what)
		}
	}
}

// limits is a rules file for both protocols. The periods are long: what is used stays used.
const limits = `
rules:
  api: {algorithm: sliding-window, limit: 10, per: 24h}
---
domain: d
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 10}}
...
`

// write puts a rules file at a path as editors do: by renaming.
func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// node is a running server and clients of it.
type node struct {
	testing.TB
	server  *Server
	path    string
	rls     ratelimit.RateLimitServiceClient
	cc      *grpc.ClientConn
	redis   net.Conn
	replies *bufio.Reader
	stopped bool
}

// loopback returns a listener.
func loopback(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// begin starts a server until the end of the test; addr is a Redis, empty for none.
func begin(t testing.TB, addr string, change func(*Options)) *node {
	t.Helper()
	n := &node{TB: t, path: filepath.Join(t.TempDir(), "rules.yaml")}
	write(t, n.path, limits)
	o := Options{
		RulesPath: n.path, Rules: rules.Options{Quiet: 5 * time.Millisecond, Poll: 50 * time.Millisecond},
		GRPC: loopback(t), RESP: loopback(t), Check: loopback(t), HTTP: loopback(t), StopTimeout: patience,
		Limiter: hybrid.Options{SyncInterval: 5 * time.Millisecond, MaxLag: 5 * time.Millisecond, MaxBackoff: 100 * time.Millisecond},
	}
	if addr != "" {
		o.Redis = redis.NewClient(hybrid.RedisOptions(addr))
	}
	if change != nil {
		change(&o)
	}
	var err error
	if n.server, err = Start(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.end)
	if n.cc, err = grpc.NewClient(o.GRPC.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	n.rls = ratelimit.NewRateLimitServiceClient(n.cc)
	if n.redis, err = net.Dial("tcp", o.RESP.Addr().String()); err != nil {
		t.Fatal(err)
	}
	n.replies = bufio.NewReader(n.redis)
	return n
}

// end stops the server, once.
func (n *node) end() {
	if n.stopped {
		return
	}
	n.stopped = true
	if n.cc != nil {
		n.cc.Close()
	}
	if n.redis != nil {
		n.redis.Close()
	}
	if err := n.server.Stop(); err != nil && !strings.Contains(err.Error(), "units") {
		n.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// synced waits until the server shares its limits.
func (n *node) synced() *node {
	n.Helper()
	eventually(n, "synced", func() bool { return n.server.Limiter().State().Mode == hybrid.Synced })
	return n
}

// take asks for one unit of a key under the rule api, as a client of Redis.
func (n *node) take(key string) (admitted bool) {
	n.Helper()
	return n.command("HL.TAKE", "api", key)[0] == 0
}

// command sends a command whose reply is numbers.
func (n *node) command(args ...string) (numbers []int64) {
	n.Helper()
	var text strings.Builder
	text.WriteString(fmt.Sprintf("*%d\r\n", len(args)))
	for _, a := range args {
		text.WriteString(fmt.Sprintf("$%d\r\n%s\r\n", len(a), a))
	}
	_ = n.redis.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(n.redis, text.String()); err != nil {
		n.Fatal(err)
	}
	for left := 1; left > 0; left-- {
		line, err := n.replies.ReadString('\n')
		if err != nil {
			n.Fatal(err)
		}
		var v int64
		if _, err := fmt.Sscanf(line[1:], "%d", &v); err != nil || line[0] != '*' && line[0] != ':' {
			n.Fatalf("%q to %v", line, args)
		}
		if line[0] == '*' {
			left += int(v)
			continue
		}
		numbers = append(numbers, v)
	}
	return numbers
}

// ask asks for one hit of a user, as Envoy does.
func (n *node) ask(user string) (admitted bool) {
	n.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	res, err := n.rls.ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{
		Domain:      "d",
		Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: user}}}},
	})
	if err != nil {
		n.Fatal(err)
	}
	return res.GetOverallCode() == ratelimit.RateLimitResponse_OK
}

// get asks for a path and returns status and body.
func (n *node) get(path string) (int, string) {
	n.Helper()
	res, err := http.Get("http://" + n.server.o.HTTP.Addr().String() + path)
	if err != nil {
		n.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		n.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// admits asks until it is refused, and returns how many were admitted.
func admits(t testing.TB, ask func(key string) bool, key string) (n int) {
	t.Helper()
	for ; ask(key); n++ {
		if n > 1000 {
			t.Fatal("nothing limits it")
		}
	}
	return n
}
