package remote

import (
	"bytes"
	"context"
	"fmt"
	"math/big"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
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
				l := &liar{lie: []byte(lie)}
				if greets {
					l.greeting = greeting
				}
				rdb := l.client(bound)
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
	l := &liar{greeting: greeting, lie: []byte("$9223372036854775807\r\n")}
	rdb := l.client(0)
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
	l.lie = []byte("*5\r\n+1\r\n+9\r\n+1\r\n+5\r\n+6\r\n")
	if res := take(t, v.Limiter, "k", anyFunnel, 1); !res.Allowed {
		t.Errorf("the next answer: %s", show(res))
	}
}

// A pipeline keeps what was read before the panic.
func TestClientPanicsAmidAPipeline(t *testing.T) {
	l := &liar{greeting: greeting, lie: []byte("+l 1\r\n$9223372036854775807\r\n")}
	rdb := l.client(0)
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
		o.Dialer = BoundReplies(redis.NewDialer(o), 16<<10)
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

// TestBoundRepliesPassesTheDialersError through, and takes 0 for the default.
func TestBoundRepliesPassesTheDialersError(t *testing.T) {
	fail := func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
	if _, err := BoundReplies(fail, 0)(ctx, "tcp", "127.0.0.1:1"); err != net.ErrClosed {
		t.Errorf("dialled: %v", err)
	}
	l := &liar{greeting: greeting, lie: []byte("$" + strconv.Itoa(defaultReplyBytes) + "\r\n")}
	conn, err := BoundReplies(l.dial, -1)(ctx, "tcp", "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	if m := conn.(*boundConn).meter; m.most != defaultReplyBytes {
		t.Errorf("bounded by %d", m.most)
	}
}

// grow builds a reply from bytes, and its value as go-redis reads it.
type grow struct {
	seed []byte
	out  bytes.Buffer
}

func (g *grow) next() int {
	if len(g.seed) == 0 {
		return 0
	}
	b := g.seed[0]
	g.seed = g.seed[1:]
	return int(b)
}

func (g *grow) value(depth int) any {
	kind, size := g.next()%13, g.next()
	if kind == 12 { // an attribute, which go-redis drops
		fmt.Fprintf(&g.out, "|%d\r\n", size%3)
		for range size % 3 {
			g.line("+%s", "name", nil)
			g.line(":%d", size, nil)
		}
		kind = g.next() % 12
	}
	if kind >= 8 && depth == 0 {
		kind -= 8
	}
	switch kind {
	case 0:
		return g.line("+%s", strings.Repeat("s", size+1), nil)
	case 1:
		return g.line(":%d", int64(size), int64(size))
	case 2:
		return g.line("#t%s", "", true)
	case 3:
		return g.line(",%d", size, float64(size))
	case 4:
		return g.line("(%d", size, big.NewInt(int64(size)))
	case 5, 6:
		s := strings.Repeat("\r\n$9\r\n*", size)
		return g.line("$%d\r\n"+s, len(s), s)
	case 7:
		return g.line("=%d\r\ntxt:"+strings.Repeat("v", size), size+4, strings.Repeat("v", size))
	case 8:
		m, n := map[any]any{}, size%4
		fmt.Fprintf(&g.out, "%%%d\r\n", n)
		for i := range n {
			k := g.line("+%s", fmt.Sprint("k", i), nil)
			m[k] = g.value(depth - 1)
		}
		return m
	default:
		list := make([]any, size%5)
		fmt.Fprintf(&g.out, "%c%d\r\n", "*~*"[kind-9], len(list))
		for i := range list {
			list[i] = g.value(depth - 1)
		}
		return list
	}
}

// line writes one value and returns it, or what it was written from.
func (g *grow) line(format string, arg, val any) any {
	fmt.Fprintf(&g.out, format+"\r\n", arg)
	if val == nil {
		return arg
	}
	return val
}

// FuzzBoundReplies grows replies of every kind and nesting. Whatever pieces
// they arrive in, the bound lets them pass unchanged if they are within it, and
// has kept count: between two of them all of it is there again.
func FuzzBoundReplies(f *testing.F) {
	for i := range byte(13) {
		f.Add([]byte{9, 3, 12, i, i, 1, 12, 0, 5, 2}, uint16(i%3))
		f.Add([]byte{i, 3, i, 2, i, 1, 0, 0}, uint16(i))
		f.Add(bytes.Repeat([]byte{i, 4, 9, 3}, 10), uint16(1))
	}
	f.Fuzz(func(t *testing.T, seed []byte, chunk uint16) {
		g := &grow{seed: seed[:min(len(seed), 200)]}
		want := g.value(6)
		l := &liar{greeting: greeting, lie: g.out.Bytes(), chunk: int(chunk) + 1}
		rdb := l.client(1 << 20)
		defer rdb.Close()
		got, err := rdb.Do(ctx, "x").Result()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%.300q: %v, %v, want %v", g.out.String(), got, err, want)
		}
		m, begun := meter{most: 1 << 20, left: 1 << 20}, false
		for p := range slices.Chunk(g.out.Bytes(), int(chunk)+1) {
			if begun && m.left == m.most {
				t.Fatalf("%.300q makes room before its end: %+v", g.out.String(), m)
			}
			if err := m.read(p); err != nil {
				t.Fatal(err)
			}
			begun = true
		}
		if m.left != m.most || m.rest != 0 || m.skip != 0 || m.size != 0 {
			t.Fatalf("after %.300q: %+v", g.out.String(), m)
		}
	})
}
