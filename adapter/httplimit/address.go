package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/address"
	"github.com/hybridlimit/hybridlimit/internal/escape"
)

// AddressOptions says whose word about a client's address counts. The zero value takes the
// address of the peer, which is the client of a service without a proxy.
type AddressOptions struct {
	// Trusted has the addresses of the proxies in front of this service. The header is
	// read only if the peer is one of them. Whoever connects from a trusted address can
	// take any address: list proxies, not networks with clients in them.
	Trusted []netip.Prefix
	// TrustUnix trusts a peer that has no address: one on a Unix domain socket.
	TrustUnix bool
	// Header is the field that the trusted proxies append to. It is required with, and
	// only with, Trusted or TrustUnix.
	Header Forwarding
	// IPv6Bits is how many bits of an IPv6 address make the key, 1 to 128. Default 64, since
	// one client usually has 2^64 addresses.
	IPv6Bits int
	// Strict gives a request no key if a trusted proxy does not say who the client is, or
	// says "unknown", an obfuscated name or what is no address. By default the key is the
	// address of the proxy that says so: clients of whom it says so are limited together.
	Strict bool
}

// ByAddress returns a KeyFunc of the client's address: the rightmost hop that is not a
// trusted proxy. What stands to the left of it has been written by the client. If all hops
// are trusted, the client is the leftmost.
//
// An IPv4 address is one key, in whatever form ("::ffff:192.0.2.1" is 192.0.2.1), also if a translator
// has put it into an IPv6 address with a prefix that is reserved for that ("64:ff9b::192.0.2.1"); so is
// an IPv6 prefix of IPv6Bits. Ports and zones do not count. A peer whose address cannot be read
// has no key, unless a trusted header names the client.
func ByAddress(o AddressOptions) (KeyFunc, error) {
	o, err := o.plain()
	if err != nil {
		return nil, err
	}
	return o.key, nil
}

// plain returns the options with defaults and plain prefixes, or everything that is wrong.
func (o AddressOptions) plain() (AddressOptions, error) {
	if o.IPv6Bits == 0 {
		o.IPv6Bits = address.Bits
	}
	if err := o.validate(); err != nil {
		return o, err
	}
	o.Trusted = slices.Clone(o.Trusted)
	for i, p := range o.Trusted {
		o.Trusted[i] = plainPrefix(p)
	}
	return o, nil
}

// validate reports everything that is wrong.
func (o *AddressOptions) validate() error {
	var errs []error
	trusts := o.TrustUnix || len(o.Trusted) > 0
	switch {
	case o.Header > Forwarded:
		errs = append(errs, fmt.Errorf("httplimit: Header is %d, must be one of the constants", o.Header))
	case trusts && o.Header == NotForwarded:
		errs = append(errs, errors.New("httplimit: Header must say which field the trusted proxies write"))
	case !trusts && o.Header != NotForwarded:
		errs = append(errs, errors.New("httplimit: Header without Trusted: every client could name any address"))
	}
	for _, p := range o.Trusted {
		if !p.IsValid() {
			errs = append(errs, errors.New("httplimit: Trusted has an invalid prefix"))
		} else if plainPrefix(p).Bits() == 0 {
			errs = append(errs, fmt.Errorf("httplimit: Trusted has %v, which is everybody", p))
		}
	}
	if o.IPv6Bits < 1 || o.IPv6Bits > 128 {
		errs = append(errs, fmt.Errorf("httplimit: IPv6Bits is %d, must be 1 to 128", o.IPv6Bits))
	}
	return errors.Join(errs...)
}

// plainPrefix returns a prefix of IPv4-mapped addresses as one of IPv4 addresses.
func plainPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

func (o *AddressOptions) key(r *http.Request) (string, error) {
	addr, err := o.client(r)
	if err != nil {
		return "", err
	}
	return address.Key(addr, o.IPv6Bits), nil
}

// maxHops bounds the trusted proxies that are looked past.
const maxHops = 64

// client walks from the peer to the left for as long as it trusts.
func (o *AddressOptions) client(r *http.Request) (netip.Addr, error) {
	at := parseNode(r.RemoteAddr)
	if !at.IsValid() && !(o.TrustUnix && isUnix(r.RemoteAddr)) {
		return at, fmt.Errorf("%w: peer %s is no address", ErrNoKey, escape.Quote(r.RemoteAddr))
	}
	if o.Header == NotForwarded || at.IsValid() && !o.trusts(at) {
		return at, nil
	}
	hops := newHops(o.Header, r.Header)
	for n := 0; ; n++ {
		node, more := hops.next()
		if !more && n > 0 {
			return at, nil // all of them are trusted
		}
		next := parseNode(node)
		if !more || !next.IsValid() || n == maxHops {
			return o.unnamed(at)
		}
		if at = next; !o.trusts(at) {
			return at, nil
		}
	}
}

// unnamed is for a client whom the trusted proxy at the given address does not name.
func (o *AddressOptions) unnamed(at netip.Addr) (netip.Addr, error) {
	if o.Strict || !at.IsValid() {
		return at, fmt.Errorf("%w: the proxy does not name the client", ErrNoKey)
	}
	return at, nil
}

func (o *AddressOptions) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(o.Trusted, func(p netip.Prefix) bool { return p.Contains(a) })
}

// isUnix reports whether a RemoteAddr is that of a Unix domain socket without a name.
func isUnix(remote string) bool { return remote == "@" || remote == "" }
