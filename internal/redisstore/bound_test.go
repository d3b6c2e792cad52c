package redisstore

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/big"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// TestBoundRepliesPassesTheDialersError through, and takes 0 for the default.
func TestBoundRepliesPassesTheDialersError(t *testing.T) {
	fail := func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
	if _, err := BoundReplies(fail, 0)(ctx, "tcp", "127.0.0.1:1"); err != net.ErrClosed {
		t.Errorf("dialled: %v", err)
	}
	l := &redistest.Liar{Greeting: redistest.Greeting, Lie: []byte("$" + strconv.Itoa(defaultReplyBytes) + "\r\n")}
	conn, err := BoundReplies(l.Dial, -1)(ctx, "tcp", "127.0.0.1:1")
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
		l := &redistest.Liar{Greeting: redistest.Greeting, Lie: g.out.Bytes(), Chunk: int(chunk) + 1}
		o := options("127.0.0.1:1")
		o.Dialer, o.PoolSize, o.MaxRetries = BoundReplies(l.Dial, 1<<20), 1, -1
		rdb := redis.NewClient(o)
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

// A dial takes no longer than the client's options say when it is made.
func TestDialerTimeout(t *testing.T) {
	server := redistest.Start(t)
	timeout := time.Duration(1)
	dial := Dialer(func() (time.Duration, *tls.Config) { return timeout, nil })
	var late net.Error
	if _, err := dial(ctx, "tcp", server.Addr()); !errors.As(err, &late) || !late.Timeout() {
		t.Errorf("within a nanosecond: %v", err)
	}
	timeout = time.Minute
	conn, err := dial(ctx, "tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
