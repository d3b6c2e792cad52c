package httplimit

import (
	"net/http"
	"net/netip"
	"strings"
)

// Forwarding says in which header field the proxies in front of a service name the client.
type Forwarding uint8

// The fields. There is no guessing: a proxy that writes one of them passes the other on as
// the client has sent it.
const (
	// NotForwarded means that clients connect directly. No header is read.
	NotForwarded Forwarding = iota
	// XForwardedFor is "X-Forwarded-For: 192.0.2.1, 198.51.100.7".
	XForwardedFor
	// Forwarded is the field of RFC 7239: `Forwarded: for="[2001:db8::1]:443";proto=https`.
	Forwarded
)

// hops are the nodes that the proxies have named, read from right to left: what a trusted
// proxy has appended comes first, and does not depend on what stands to the left of it. Read
// from the left, a quote that a client opens would swallow all that proxies append.
type hops struct {
	lines []string // those that are not read yet
	rest  string   // of the line that is read
	open  bool     // rest is still to be read
	kind  Forwarding
}

func newHops(kind Forwarding, h http.Header) hops {
	if kind == Forwarded {
		return hops{lines: h["Forwarded"], kind: kind}
	}
	return hops{lines: h["X-Forwarded-For"], kind: kind}
}

// next returns the next node to the left, "" for what is no node, and whether there was one.
func (h *hops) next() (node string, more bool) {
	if !h.open {
		if len(h.lines) == 0 {
			return "", false
		}
		last := len(h.lines) - 1
		h.rest, h.lines, h.open = h.lines[last], h.lines[:last], true
	}
	if h.kind != Forwarded {
		at := strings.LastIndexByte(h.rest, ',')
		node = h.rest[at+1:]
		h.rest, h.open = h.rest[:max(at, 0)], at >= 0
		return trimOWS(node), true
	}
	at := lastOutsideQuotes(h.rest, ',')
	element := h.rest[at+1:]
	h.rest, h.open = h.rest[:max(at, 0)], at >= 0
	return forNode(trimOWS(element)), true
}

func trimOWS(s string) string { return strings.Trim(s, " \t") }

// lastOutsideQuotes returns the index of the last c that is not in a quoted string, -1 if
// there is none. A quote with an odd number of backslashes before it is an escaped one.
func lastOutsideQuotes(s string, c byte) int {
	quoted := false
	for i := len(s) - 1; i >= 0; i-- {
		switch {
		case s[i] == '"' && !(quoted && isEscaped(s, i)):
			quoted = !quoted
		case s[i] == c && !quoted:
			return i
		}
	}
	return -1
}

func isEscaped(s string, i int) bool {
	n := 0
	for n < i && s[i-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// forNode returns the node of the "for" parameter of one element, "" if it has none or if
// the element is malformed.
func forNode(element string) (node string) {
	seen := false
	for element != "" {
		at := lastOutsideQuotes(element, ';')
		name, value, isPair := strings.Cut(trimOWS(element[at+1:]), "=")
		element = element[:max(at, 0)]
		value, ok := unquoted(value)
		if !isPair || !isToken(name) || !ok {
			return ""
		}
		if strings.EqualFold(name, "for") {
			if seen {
				return ""
			}
			node, seen = value, true
		}
	}
	return node
}

// unquoted returns the text of a token or of a quoted string.
func unquoted(value string) (text string, ok bool) {
	if !strings.HasPrefix(value, `"`) {
		return value, isToken(value) || parseNode(value).IsValid() // some proxies forget to quote
	}
	var b strings.Builder
	for i := 1; i < len(value); i++ {
		switch value[i] {
		case '"':
			return b.String(), i == len(value)-1
		case '\\':
			if i++; i == len(value) {
				return "", false
			}
		}
		b.WriteByte(value[i])
	}
	return "", false
}

// parseNode returns the address of a node, invalid if it has none: an IPv4 address, or an
// IPv6 address with or without brackets; behind it, but not behind bare IPv6, a port may
// follow. A zone is cut off, since it means something on the sender's machine alone.
func parseNode(s string) netip.Addr {
	const longest = 200 // of what can be an address with a zone and a port
	if len(s) > longest {
		return netip.Addr{}
	}
	if inner, isBracketed := strings.CutPrefix(s, "["); isBracketed {
		host, port, closed := strings.Cut(inner, "]")
		a, err := netip.ParseAddr(host)
		if !closed || err != nil || !a.Is6() || port != "" && !isPort(port) {
			return netip.Addr{}
		}
		return a.WithZone("").Unmap()
	}
	if host, port, found := strings.Cut(s, ":"); found && isPort(":"+port) {
		s = host
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}
	}
	return a.WithZone("").Unmap()
}

// isPort reports whether s is a colon and a port of RFC 7239: digits, or an obfuscated one.
func isPort(s string) bool {
	port, found := strings.CutPrefix(s, ":")
	if name, obfuscated := strings.CutPrefix(port, "_"); found && obfuscated {
		return name != "" && all(name, func(c byte) bool { return isAlnum(c) || strings.IndexByte("._-", c) >= 0 })
	}
	return found && 1 <= len(port) && len(port) <= 5 && all(port, isDigit)
}

func all(s string, is func(c byte) bool) bool {
	for i := range len(s) {
		if !is(s[i]) {
			return false
		}
	}
	return true
}
