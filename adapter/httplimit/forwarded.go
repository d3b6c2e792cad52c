package httplimit

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/address"
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

// next returns the next node to the left, "" for what is no node, and whether there was one. Empty elements of
// a list do not count, see RFC 9110, section 5.6.1.
func (h *hops) next() (node string, more bool) {
	for h.open || len(h.lines) > 0 {
		if !h.open {
			last := len(h.lines) - 1
			h.rest, h.lines = h.lines[last], h.lines[:last]
		}
		at := strings.LastIndexByte(h.rest, ',')
		if h.kind == Forwarded {
			at = lastOutsideQuotes(h.rest, ',')
		}
		element := trimOWS(h.rest[at+1:])
		h.rest, h.open = h.rest[:max(at, 0)], at >= 0
		switch {
		case element == "":
		case h.kind == Forwarded:
			return forNode(element), true
		default:
			return element, true
		}
	}
	return "", false
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
		pair := trimOWS(element[at+1:])
		if element = element[:max(at, 0)]; pair == "" { // RFC 7239 allows empty ones
			continue
		}
		name, value, isPair := strings.Cut(pair, "=")
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
		return value, value != "" && !strings.ContainsAny(value, "\" \t") // some proxies forget to quote
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

// parseNode returns the address of a node, the zero Addr if it has none.
func parseNode(s string) netip.Addr {
	a, _ := address.Parse(s)
	return a
}

func all(s string, is func(c byte) bool) bool {
	for i := range len(s) {
		if !is(s[i]) {
			return false
		}
	}
	return true
}
