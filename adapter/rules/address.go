package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/address"
	"github.com/hybridlimit/hybridlimit/internal/escape"
)

// ErrNoAddress reports a key that is no address, of a rule whose keys are addresses.
var ErrNoAddress = errors.New("rules: the keys of this rule are addresses")

// CounterKey returns the key under which limiters should count for a rule of that name. If the file says that
// its keys are addresses, that is the one of httplimit.ByAddress: an IPv4 address, or the /64 of an IPv6
// address, in whatever form programs print it ("203.0.113.9:443" and "[::ffff:203.0.113.9]" are
// "203.0.113.9"). What is no address is an [ErrNoAddress]. Keys of other rules stay as they are.
//
// Look the rule up by the key as it came: [Set.For] knows these forms, and a range may have one address.
func (s *Set) CounterKey(name, key string) (string, error) {
	if s == nil || s.rules[name] == nil || !s.rules[name].addressed {
		return key, nil
	}
	at := addressOf(key)
	if !at.IsValid() {
		return "", fmt.Errorf("%w: %s is none", ErrNoAddress, escape.Quote(key))
	}
	if at = counted(at); at.IsSingleIP() && at.Addr().Is4() {
		return at.Addr().String(), nil
	}
	return at.String(), nil
}

// addressOf returns the address that a key is, as a prefix of full length, or the prefix that it is; the zero
// Prefix if it is neither.
func addressOf(key string) netip.Prefix {
	if a, ok := address.Parse(key); ok {
		return netip.PrefixFrom(a, a.BitLen())
	}
	if strings.IndexByte(key, '/') < 0 {
		return netip.Prefix{}
	}
	p, err := netip.ParsePrefix(key)
	if err != nil {
		return netip.Prefix{}
	}
	if p != p.Masked() { // an address with the network that it is in, as PostgreSQL prints some
		a := p.Addr().Unmap()
		return netip.PrefixFrom(a, a.BitLen())
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

// counted returns the prefix under which an address counts.
func counted(at netip.Prefix) netip.Prefix {
	if !at.IsSingleIP() {
		return at
	}
	a := address.Client(at.Addr())
	if a.Is4() {
		return netip.PrefixFrom(a, 32)
	}
	return netip.PrefixFrom(a, address.Bits).Masked()
}
