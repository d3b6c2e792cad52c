// Package address reads addresses of clients, and says which of them are one client.
package address

import (
	"encoding/binary"
	"net/netip"
	"strings"
)

// Bits is how many bits of an IPv6 address make a key, unless somebody says otherwise: one client usually
// has 2^64 addresses.
const Bits = 64

// longest bounds the text of an address, with a zone, a port, and the name of a host before it.
const longest = 300

// Parse reads an address in a form in which programs print one: an IPv4 or IPv6 address; in brackets; with
// a zone or a port behind it; with the full length of a prefix (PostgreSQL); in double quotes (RFC 7239);
// after "ipv4:" or "ipv6:" (gRPC); after a slash and perhaps the name of a host (Java). The zone is cut off,
// for it means something on one machine alone. An IPv4-mapped address is the one of IPv4.
func Parse(text string) (a netip.Addr, ok bool) {
	if len(text) > longest {
		return a, false
	}
	s := text
	if inner, found := strings.CutPrefix(s, `"`); found {
		if s, ok = strings.CutSuffix(inner, `"`); !ok {
			return a, false
		}
	}
	before, after, slashed := strings.Cut(s, "/")
	switch {
	case !slashed:
	case before == "" || !isNumber(after, 3):
		// Java. A name that is an address is one that Java has not found a name for.
		if is, named := parse(before); !isHost(before) || named && is != addressIn(after) {
			return a, false
		}
		s = after
	default:
		s = before
	}
	whole := "32"
	if a = addressIn(s); a.Is6() {
		whole = "128"
	}
	if !a.IsValid() || slashed && s == before && after != whole {
		return netip.Addr{}, false
	}
	return a.WithZone("").Unmap(), true
}

// isHost reports whether s may be the name of a host, or is empty.
func isHost(s string) bool {
	return strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-:[]%") == ""
}

// addressIn reads an address, perhaps behind the scheme of gRPC; the zero Addr if it is none.
func addressIn(s string) netip.Addr {
	if rest := ofScheme(s); rest != "" {
		s = rest
	}
	if a, ok := parse(s); ok {
		return a
	}
	return netip.Addr{}
}

// ofScheme returns what follows the scheme of gRPC's names of peers; empty: there is none. gRPC for C++ and
// Python escapes the brackets.
func ofScheme(s string) string {
	if len(s) < 5 || !strings.EqualFold(s[:5], "ipv4:") && !strings.EqualFold(s[:5], "ipv6:") {
		return ""
	}
	return strings.NewReplacer("%5B", "[", "%5b", "[", "%5D", "]", "%5d", "]").Replace(s[5:])
}

// parse reads an address, and behind it a port.
func parse(s string) (a netip.Addr, ok bool) {
	if inner, found := strings.CutPrefix(s, "["); found {
		host, port, closed := strings.Cut(inner, "]")
		a, err := netip.ParseAddr(host)
		return a, closed && err == nil && (port == "" || isPort(port))
	}
	at := strings.IndexByte(s, ':')
	if colons := strings.Count(s, ":"); colons == 8 && !strings.Contains(s, "::") && !strings.Contains(s, "%") {
		at = strings.LastIndexByte(s, ':') // Java before 14 writes all eight groups and no brackets
	} else if dot, last := strings.LastIndexByte(s, '.'), strings.LastIndexByte(s, ':'); colons > 1 && dot >= 0 && dot < last && !strings.Contains(s, "%") {
		at = last // "::ffff:203.0.113.9:443": nothing follows the dots of an address
	} else if colons != 1 {
		at = -1
	}
	if at >= 0 {
		if !isPort(s[at:]) {
			return a, false
		}
		s = s[:at]
	}
	a, err := netip.ParseAddr(s)
	return a, err == nil
}

// isPort reports whether s is a colon and a port of RFC 7239: digits, or an obfuscated one.
func isPort(s string) bool {
	port, found := strings.CutPrefix(s, ":")
	if name, obfuscated := strings.CutPrefix(port, "_"); found && obfuscated {
		return name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == ""
	}
	return found && isNumber(port, 5)
}

// isNumber reports whether s is a number of so many digits at most.
func isNumber(s string, most int) bool {
	return s != "" && len(s) <= most && strings.Trim(s, "0123456789") == ""
}

// Client returns the address that counts for a client: the one of IPv4 that is inside a, if a translator or
// a tunnel of IPv4 has made a by a reserved prefix. Addresses of many clients share 64 bits there, or one
// client has many of them. An IPv4 address that is not to be inside such an address (private ones) is not
// taken for one: whoever writes it would be somebody else.
func Client(a netip.Addr) netip.Addr {
	a = a.WithZone("").Unmap()
	if !a.Is6() {
		return a
	}
	b := a.As16()
	var v4 [4]byte
	switch high := binary.BigEndian.Uint64(b[:8]); {
	case high == 0x0064_ff9b_0000_0000 && b[8]|b[9]|b[10]|b[11] == 0: // RFC 6052
		v4 = [4]byte(b[12:])
	case high>>16 == 0x0064_ff9b_0001 && b[8] == 0: // RFC 8215, with a prefix of 96 or 48 bits
		switch {
		case b[13]|b[14]|b[15] != 0:
			v4 = [4]byte(b[12:])
		case b[11]|b[12] == 0:
			v4 = [4]byte{b[6], b[7], b[9], b[10]}
		}
	case high == 0 && b[8] == 0xff && b[9] == 0xff && b[10]|b[11] == 0: // RFC 2765, "::ffff:0:192.0.2.1"
		v4 = [4]byte(b[12:])
	case high>>48 == 0x2002: // 6to4, RFC 3056
		v4 = [4]byte(b[2:6])
	case high>>32 == 0x2001_0000: // Teredo, RFC 4380
		binary.BigEndian.PutUint32(v4[:], ^binary.BigEndian.Uint32(b[12:]))
	}
	if inside := netip.AddrFrom4(v4); inside.IsGlobalUnicast() && !inside.IsPrivate() {
		return inside
	}
	return a
}

// Key returns the key under which a client with the address a counts: that of IPv4, or so many bits of that
// of IPv6.
func Key(a netip.Addr, bits int) string {
	if a = Client(a); a.Is4() {
		return a.String()
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return ""
	}
	return p.String()
}
