package grpclimit_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/test/bufconn"

	"github.com/hybridlimit/hybridlimit/adapter/grpclimit"
)

// named is an address of a listener's own type.
type named struct{ network, text string }

func (a named) Network() string { return a.network }
func (a named) String() string  { return a.text }

func TestPeer(t *testing.T) {
	tcp := func(s string) net.Addr {
		ip, zone, _ := strings.Cut(s, "%")
		return &net.TCPAddr{IP: net.ParseIP(ip), Zone: zone, Port: 4711}
	}
	for _, c := range []struct {
		addr net.Addr
		key  string
		err  error
	}{
		{tcp("192.0.2.1"), "192.0.2.1", nil},
		{&net.TCPAddr{IP: net.IP{192, 0, 2, 1}}, "192.0.2.1", nil},
		{tcp("::ffff:192.0.2.1"), "192.0.2.1", nil},
		{tcp("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64", nil},
		{tcp("2001:db8:1:2::7"), "2001:db8:1:2::/64", nil},
		{tcp("2001:db8:1:3::7"), "2001:db8:1:3::/64", nil},
		{tcp("fe80::1%eth0"), "fe80::/64", nil},
		{tcp("::1"), "::/64", nil},
		{named{"tcp", "192.0.2.1:80"}, "192.0.2.1", nil},
		{named{"tcp", "[::ffff:192.0.2.1%x]:80"}, "192.0.2.1", nil},
		{named{"tcp6", "[2001:db8:1:2::7]:80"}, "2001:db8:1:2::/64", nil},
		{named{"tcp", "192.0.2.1"}, "", grpclimit.ErrNotTCP},
		{named{"tcp", "host:80"}, "", grpclimit.ErrNotTCP},
		{named{"tcp", ""}, "", grpclimit.ErrNotTCP},
		{named{"bufconn", "192.0.2.1:80"}, "", grpclimit.ErrNotTCP},
		{named{"", ""}, "", grpclimit.ErrNotTCP},
		{&net.TCPAddr{}, "", grpclimit.ErrNotTCP},
		{&net.TCPAddr{IP: net.IP{1, 2, 3}}, "", grpclimit.ErrNotTCP},
		{(*net.TCPAddr)(nil), "", grpclimit.ErrNotTCP},
		{&net.UnixAddr{Name: "@", Net: "unix"}, "", grpclimit.ErrNotTCP},
		{nil, "", grpclimit.ErrNoKey},
	} {
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: c.addr})
		key, err := grpclimit.ByPeer()(ctx, grpclimit.Call{})
		if key != c.key || !errors.Is(err, c.err) {
			t.Errorf("%v: %q, %v", c.addr, key, err)
		}
		wantKey, wantErr := c.key, c.err
		if errors.Is(c.err, grpclimit.ErrNotTCP) {
			wantKey, wantErr = "others", nil
		}
		if key, err := grpclimit.ByPeerOr("others")(ctx, grpclimit.Call{}); key != wantKey || !errors.Is(err, wantErr) {
			t.Errorf("%v, or others: %q, %v", c.addr, key, err)
		}
	}
	if key, err := grpclimit.ByPeer()(t.Context(), grpclimit.Call{}); key != "" || !errors.Is(err, grpclimit.ErrNoKey) {
		t.Errorf("no peer: %q, %v", key, err)
	}
}

func TestMetadata(t *testing.T) {
	in := func(pairs ...string) context.Context {
		return metadata.NewIncomingContext(t.Context(), metadata.Pairs(pairs...))
	}
	key := grpclimit.ByMetadata("User")
	if got, err := key(in("user", "alice"), grpclimit.Call{}); got != "alice" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := key(in("user", "alice", "user", "bob"), grpclimit.Call{}); got != "" || !errors.Is(err, grpclimit.ErrSeveralValues) {
		t.Errorf("%q, %v", got, err)
	}
	for _, ctx := range []context.Context{t.Context(), in(), in("other", "alice")} {
		if got, err := key(ctx, grpclimit.Call{}); got != "" || !errors.Is(err, grpclimit.ErrNoKey) {
			t.Errorf("%q, %v", got, err)
		}
	}
}

func TestJoin(t *testing.T) {
	fixed, call := grpclimit.Fixed, grpclimit.Call{Method: "/a/B", Target: "dns:///x"}
	of := func(key grpclimit.KeyFunc) string {
		t.Helper()
		s, err := key(t.Context(), call)
		if err != nil || s == "" {
			t.Fatalf("%q, %v", s, err)
		}
		return s
	}
	if of(grpclimit.Join(fixed("a:b"), fixed("c"))) == of(grpclimit.Join(fixed("a"), fixed("b:c"))) {
		t.Error("other parts make the same key")
	}
	if of(grpclimit.Join(grpclimit.ByMethod(), grpclimit.ByTarget())) == of(grpclimit.Join(grpclimit.ByTarget(), grpclimit.ByMethod())) {
		t.Error("another order makes the same key")
	}
	empty := func(context.Context, grpclimit.Call) (string, error) { return "", nil }
	if s, err := grpclimit.Join(fixed("a"), empty)(t.Context(), call); s != "" || !errors.Is(err, grpclimit.ErrNoKey) {
		t.Errorf("with an empty part: %q, %v", s, err)
	}
	if s, err := grpclimit.Join(fixed("a"), grpclimit.ByMetadata("user"))(t.Context(), call); s != "" || !errors.Is(err, grpclimit.ErrNoKey) {
		t.Errorf("with a part that is not there: %q, %v", s, err)
	}
	parts := []grpclimit.KeyFunc{fixed("a")}
	joined := grpclimit.Join(parts...)
	parts[0] = nil
	of(joined) // which has a copy
	for i, none := range []grpclimit.KeyFunc{
		grpclimit.Join(), grpclimit.Join(fixed("a"), nil), fixed(""), grpclimit.ByPeerOr(""), grpclimit.ByMetadata(""),
	} {
		if none != nil {
			t.Errorf("key function %d is not nil", i)
		}
	}
}

// from returns a dialer of connections from an address of this machine.
func from(ip string) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
		return d.DialContext(ctx, "tcp", addr)
	})
}

func TestPeersOverTCP(t *testing.T) {
	lim, _ := alone(t)
	addr := serve(t, nil, echo(), unary(t, lim, bucket("api", 2), grpclimit.ByPeer()))
	one, again := dial(t, addr), dial(t, addr) // other ports of one address
	want(t, say(t, one, "a"), codes.OK)
	want(t, say(t, again, "b"), codes.OK)
	want(t, say(t, one, "c"), codes.ResourceExhausted)
	want(t, say(t, again, "d"), codes.ResourceExhausted)
	if !canDialFrom("127.0.0.2") {
		if runtime.GOOS == "linux" { // there all of 127.0.0.0/8 is
			t.Fatal("127.0.0.2 is no address of this machine")
		}
		t.Skip("127.0.0.2 is no address of this machine")
	}
	other := dial(t, addr, from("127.0.0.2"))
	want(t, say(t, other, "e"), codes.OK)
	want(t, say(t, other, "f"), codes.OK)
	want(t, say(t, other, "g"), codes.ResourceExhausted)
}

func canDialFrom(ip string) bool {
	l, err := net.Listen("tcp", ip+":0")
	if err == nil {
		l.Close()
	}
	return err == nil
}

// A server that listens on all addresses sees an IPv4 client as a mapped address.
func TestMappedPeerOverTCP(t *testing.T) {
	lim, _ := alone(t)
	var keys []string
	spy := func(ctx context.Context, call grpclimit.Call) (string, error) {
		key, err := grpclimit.ByPeer()(ctx, call)
		keys = append(keys, key)
		return key, err
	}
	lis, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(serve(t, lis, echo(), unary(t, lim, bucket("api", 9), spy)))
	want(t, say(t, dial(t, "127.0.0.1:"+port), "a"), codes.OK)
	if len(keys) != 1 || keys[0] != "127.0.0.1" {
		t.Errorf("keys %q", keys)
	}
}

func TestPeersWithoutAddress(t *testing.T) {
	lim, _ := alone(t)
	t.Run("bufconn", func(t *testing.T) {
		lis := bufconn.Listen(1 << 16)
		serve(t, lis, echo(), unary(t, lim, bucket("buf", 2), grpclimit.ByPeer()))
		cc := dial(t, "passthrough:///buf", grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return lis.DialContext(ctx)
		}))
		want(t, say(t, cc, "a"), codes.InvalidArgument)
	})
	t.Run("unix", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "s")
		lis, err := net.Listen("unix", file)
		if err != nil {
			t.Fatal(err)
		}
		serve(t, lis, echo(), unary(t, lim, bucket("unix", 1), grpclimit.ByPeerOr("local")))
		cc := dial(t, "unix:"+file)
		want(t, say(t, cc, "a"), codes.OK)
		want(t, say(t, cc, "b"), codes.ResourceExhausted)
		if res := lim.Peek("local", bucket("unix", 1)); res.Remaining != 0 {
			t.Errorf("counted elsewhere: %+v", res)
		}
	})
}

// Whatever the address of a peer is, it has a key or an error, and never both.
func FuzzPeer(f *testing.F) {
	f.Add("tcp", "192.0.2.1:80", []byte{192, 0, 2, 1})
	f.Add("tcp", "[fe80::1%z]:80", []byte{})
	f.Add("unix", "@", []byte("0123456789abcdef"))
	f.Fuzz(func(t *testing.T, network, text string, ip []byte) {
		for _, a := range []net.Addr{named{network, text}, &net.TCPAddr{IP: ip, Zone: text}} {
			ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: a})
			key, err := grpclimit.ByPeer()(ctx, grpclimit.Call{})
			if (key == "") != (err != nil) {
				t.Errorf("%v: %q, %v", a, key, err)
			}
			if strings.Contains(key, "%") || strings.HasPrefix(key, "::ffff:") {
				t.Errorf("%v: %q", a, key)
			}
		}
	})
}
