package remote

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// What makes go-redis set aside gigabytes, panic, or use up the stack, is
// refused before it sees it.
func TestBoundReplies(t *testing.T) {
	for name, lie := range map[string]string{
		"string":              "$1000000000000\r\n",
		"longest string":      "$9223372036854775807\r\n",
		"string beyond int64": "$99999999999999999999\r\n",
		"endless number":      "$" + strings.Repeat("0", 1000) + "\r\n",
		"array":               "*1000000000000\r\n",
		"array in an array":   "*2\r\n+a\r\n*1000000000\r\n",
		"map":                 "%1000000000000\r\n",
		"map, wrapping":       "%4611686018427387904\r\n",
		"set":                 "~1000000000\r\n",
		"push":                ">1000000000\r\n",
		"attribute":           "|1000000000\r\n",
		"attributes":          strings.Repeat("|0\r\n", 1<<15),
		"error":               "!1000000000\r\n",
		"verbatim":            "=1000000000\r\n",
		"deep array":          strings.Repeat("*1\r\n", 1<<15),
		"deep map":            strings.Repeat("%1\r\n+a\r\n", 1<<15),
		"wide and deep":       strings.Repeat("*1000\r\n", 16),
		"long line":           "+" + strings.Repeat("a", 1<<17),
		"long error":          "-" + strings.Repeat("a", 1<<17),
	} {
		t.Run(name, func(t *testing.T) {
			for _, greets := range []bool{false, true} {
				l := &redistest.Liar{Lie: []byte(lie)}
				if greets {
					l.Greeting = redistest.Greeting
				}
				rdb := lying(l, bound)
				defer rdb.Close()
				v, before := newVictim(t, rdb), allocated()
				for which := range victimAsks {
					_, reason := Classify(v.ask(t, which))
					if reason != "protocol" {
						t.Errorf("question %d: %q, want protocol", which, reason)
					}
				}
				if got := allocated() - before; got > 32<<20 {
					t.Errorf("%d bytes allocated", got)
				}
			}
		})
	}
}

// Without the bound go-redis panics at a length that no slice can have. That
// is an error like any other, and the client is not worn out by it.
func TestClientPanics(t *testing.T) {
	l := &redistest.Liar{Greeting: redistest.Greeting, Lie: []byte("$9223372036854775807\r\n")}
	rdb := lying(l, 0)
	defer rdb.Close()
	v := newVictim(t, rdb)
	for range 3 {
		for which := range victimAsks {
			err := v.ask(t, which)
			if class, reason := Classify(err); class != ClassUnavailable || reason != "panic" {
				t.Fatalf("question %d: %v", which, err)
			}
		}
	}
	l.Lie = []byte("*5\r\n+1\r\n+9\r\n+1\r\n+5\r\n+6\r\n")
	if res := take(t, v.Limiter, "k", anyFunnel, 1); !res.Allowed {
		t.Errorf("the next answer: %s", show(res))
	}
}

// A pipeline keeps what was read before the panic.
func TestClientPanicsAmidAPipeline(t *testing.T) {
	l := &redistest.Liar{Greeting: redistest.Greeting, Lie: []byte("+l 1\r\n$9223372036854775807\r\n")}
	rdb := lying(l, 0)
	defer rdb.Close()
	s := newVictim(t, rdb).store
	out, _ := s.Exec(ctx, []*redisstore.Batch{{Node: "n", Seq: 1}, {Shard: 1, Node: "n", Seq: 1}}, nil)
	if _, reason := Classify(out[1].Err); out[0].Err != nil || out[0].Reply.Verdict != redisstore.VerdictLost || reason != "panic" {
		t.Errorf("%+v", out)
	}
}

// A bounded client works like any other: against both Redises, for long
// pipelines, and after the server has closed its connections.
func TestBoundRepliesLetsGoodOnesPass(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		o := options(b.addr)
		o.Dialer = redisstore.BoundReplies(redis.NewDialer(o), 16<<10)
		o.PoolSize = 1
		rdb := redis.NewClient(o)
		defer rdb.Close()
		v, rule := newVictim(t, rdb), funnel(t, 1000, 1, time.Hour)
		for range 20 {
			take(t, v.Limiter, "k", rule, 1)
		}
		pipe := rdb.Pipeline()
		for range 1000 {
			pipe.Ping(ctx)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		for _, get := range []int{100, 16 << 10, 17 << 10} {
			b.set("big", strings.Repeat("x", get))
			if err := rdb.Get(ctx, "big").Err(); (err == nil) != (get < 16<<10) {
				t.Errorf("a value of %d bytes: %v", get, err)
			}
		}
		if b.real == nil {
			return // miniredis cannot close the connections of others
		}
		take(t, v.Limiter, "k", rule, 1)
		b.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		take(t, v.Limiter, "k", rule, 1) // go-redis has looked at the socket, and dialled anew
	})
}
