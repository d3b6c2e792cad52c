package grpclimit_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/hybridlimit/hybridlimit/adapter/grpclimit"
	"github.com/hybridlimit/hybridlimit/limit"
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
		{tcp("2001:db8:1:3::7"), "2001:db8:1:3::/64", nil},
		{tcp("fe80::1%eth0"), "fe80::/64", nil},
		{named{"tcp", "192.0.2.1:80"}, "192.0.2.1", nil},
		{named{"tcp", "[::ffff:192.0.2.1%x]:80"}, "192.0.2.1", nil},
		{named{"tcp6", "[2001:db8:1:2::7]:80"}, "2001:db8:1:2::/64", nil},
		{named{"tcp", "192.0.2.1"}, "", grpclimit.ErrNotTCP},
		{named{"tcp", "host:80"}, "", grpclimit.ErrNotTCP},
		{named{"bufconn", "192.0.2.1:80"}, "", grpclimit.ErrNotTCP},
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
	if s, err := joined(t.Context(), call); s != limit.JoinKey("a") || err != nil { // it has a copy
		t.Errorf("%q, %v", s, err)
	}
	for i, none := range []grpclimit.KeyFunc{
		grpclimit.Join(), grpclimit.Join(fixed("a"), nil), fixed(""), grpclimit.ByPeerOr(""), grpclimit.ByMetadata(""),
	} {
		if none != nil {
			t.Errorf("key function %d is not nil", i)
		}
	}
}
