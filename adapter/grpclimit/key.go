package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/hybridlimit/hybridlimit/internal/address"
	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Call is what is known of a call when it begins. It is a value to read.
type Call struct {
	// Method is the full name: "/package.Service/Method". A server with a handler for
	// unknown services gets it from the caller.
	Method string
	// Target is what the client connection was made for; "" on a server.
	Target string
	// Stream tells a stream from a unary call.
	Stream bool
	// Request is the message of a unary call; nil for a stream.
	Request any
}

// KeyFunc says under which key a call counts. An error or an empty key refuses the call:
// see [KeyErrorCode]. It must be safe for concurrent use.
type KeyFunc func(ctx context.Context, call Call) (string, error)

// Errors of the key functions of this package; [RefusedError].Err wraps them.
var (
	// ErrNoKey reports a call without what its key is made of: no peer, no or empty
	// metadata, an empty string from a key function.
	ErrNoKey = errors.New("grpclimit: the call has no key")
	// ErrNotTCP reports a peer that has no IP address, such as one on a Unix socket.
	ErrNotTCP = errors.New("grpclimit: the peer has no IP address")
	// ErrSeveralValues reports metadata with more than one value: a caller could choose
	// which of them counts.
	ErrSeveralValues = errors.New("grpclimit: the metadata has more than one value")
)

// ByPeer counts by the IP address at the other end of the connection, without the port.
// IPv4-mapped IPv6 is IPv4, and so is an IPv4 address that a translator has put into one of IPv6 with a
// prefix that is reserved for that. IPv6 counts by /64, such as "2001:db8::/64", without its zone.
// A peer without an IP address (Unix socket, bufconn) is refused with [ErrNotTCP]; see
// [ByPeerOr].
func ByPeer() KeyFunc {
	return func(ctx context.Context, _ Call) (string, error) { return peerKey(ctx) }
}

// ByPeerOr is [ByPeer] for servers that also listen where peers have no IP address: these
// peers all count together, under the key other. It is nil if other is empty, which the
// constructors refuse.
func ByPeerOr(other string) KeyFunc {
	if other == "" {
		return nil
	}
	return func(ctx context.Context, _ Call) (string, error) {
		key, err := peerKey(ctx)
		if errors.Is(err, ErrNotTCP) {
			return other, nil
		}
		return key, err
	}
}

func peerKey(ctx context.Context) (string, error) {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return "", fmt.Errorf("%w: no peer", ErrNoKey)
	}
	addr, ok := ipOf(p.Addr)
	if !ok {
		return "", fmt.Errorf("%w: its network is %s", ErrNotTCP, escape.Quote(p.Addr.Network()))
	}
	return address.Key(addr, address.Bits), nil
}

// ipOf returns the IP address of a TCP address. Listeners may wrap addresses in types of
// their own, which say the same as text.
func ipOf(a net.Addr) (netip.Addr, bool) {
	if tcp, ok := a.(*net.TCPAddr); ok {
		if tcp == nil {
			return netip.Addr{}, false
		}
		addr, ok := netip.AddrFromSlice(tcp.IP)
		return addr, ok
	}
	if !strings.HasPrefix(a.Network(), "tcp") {
		return netip.Addr{}, false
	}
	at, err := netip.ParseAddrPort(a.String())
	return at.Addr(), err == nil
}

// ByMetadata counts by a value that the caller sent, such as a user's name that an
// interceptor before this one has verified. A call without it, with an empty value, or with
// more than one value is refused. It is for servers: it reads the incoming metadata.
// It is nil if name is empty.
func ByMetadata(name string) KeyFunc {
	if name == "" {
		return nil
	}
	return func(ctx context.Context, _ Call) (string, error) {
		switch values := metadata.ValueFromIncomingContext(ctx, name); len(values) {
		case 0:
			return "", fmt.Errorf("%w: no metadata %q", ErrNoKey, name)
		case 1:
			return values[0], nil
		default:
			return "", fmt.Errorf("%w: %q", ErrSeveralValues, name)
		}
	}
}

// ByMethod counts by the full name of the method.
func ByMethod() KeyFunc {
	return func(_ context.Context, call Call) (string, error) { return call.Method, nil }
}

// ByTarget counts by the target of the client connection. A call on a server has none and is
// refused.
func ByTarget() KeyFunc {
	return func(_ context.Context, call Call) (string, error) { return call.Target, nil }
}

// Fixed counts all calls together. It is nil if key is empty.
func Fixed(key string) KeyFunc {
	if key == "" {
		return nil
	}
	return func(context.Context, Call) (string, error) { return key, nil }
}

// Join counts by several keys at once, such as user and method. Other parts make another
// key, whatever is in them (see [limit.JoinKey]); a part that is empty refuses the call. It
// is nil if there are no parts or one is nil.
func Join(parts ...KeyFunc) KeyFunc {
	if len(parts) == 0 {
		return nil
	}
	own := make([]KeyFunc, len(parts))
	for i, p := range parts {
		if p == nil {
			return nil
		}
		own[i] = p
	}
	return func(ctx context.Context, call Call) (string, error) {
		keys := make([]string, len(own))
		for i, p := range own {
			key, err := p.of(ctx, call)
			if err != nil {
				return "", err
			}
			keys[i] = key
		}
		return limit.JoinKey(keys...), nil
	}
}

// of returns the key of a call, which is never empty without an error.
func (f KeyFunc) of(ctx context.Context, call Call) (string, error) {
	key, err := f(ctx, call)
	if err != nil {
		return "", err
	}
	if key == "" {
		return "", ErrNoKey
	}
	return key, nil
}
