package httplimit

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/limittest"
)

func prefixes(text ...string) (out []netip.Prefix) {
	for _, s := range text {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func byAddress(t testing.TB, o AddressOptions) KeyFunc {
	t.Helper()
	key, err := ByAddress(o)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

var proxies = prefixes("10.0.0.0/8", "2001:db8:ffff::/48", "::ffff:192.168.0.0/112")

// Fault 55: an address is one key in whatever form it comes, and no key is ever empty.
func TestAddressForms(t *testing.T) {
	for _, c := range []struct{ remote, want string }{
		{"192.0.2.1:1234", "192.0.2.1"},
		{"192.0.2.1", "192.0.2.1"},
		{"[::ffff:192.0.2.1]:1234", "192.0.2.1"},
		{"[2001:db8::1]:1234", "2001:db8::/64"},
		{"[2001:DB8:0:0:ffff::2]:1", "2001:db8::/64"},
		{"[2001:db8:0:1::1]:1", "2001:db8:0:1::/64"},
		{"[fe80::1%eth0]:1234", "fe80::/64"},
		{"[::1]:1", "::/64"},
		{"", ""}, {"@", ""}, {"pipe", ""}, {"192.0.2.1:", ""}, {"192.0.2.1:x", ""}, {"192.0.2.1:123456", ""}, {"192.0.2:1", ""},
		{"192.0.2.256:1", ""}, {"192.000.2.1:1", ""}, {"[192.0.2.1]:1", "192.0.2.1"}, {"/tmp/x/192.0.2.1", ""}, {"[::1", ""}, {"[::1]1", ""}, {"[]:1", ""}, {":1", ""},
		{limittest.HostileKey(), ""}, {"a.example:1", ""}, {"[::1%]:1", ""}, {"unknown", ""}, {"\x00", ""}, {strings.Repeat("1", 1000), ""},
		{"[::1%" + strings.Repeat("z", 1000) + "]:1", ""},
	} {
		key, err := byAddress(t, AddressOptions{})(&http.Request{RemoteAddr: c.remote})
		if key != c.want || errors.Is(err, ErrNoKey) != (c.want == "") {
			t.Errorf("%.50q: %q, %v, want %q", c.remote, key, err, c.want)
		}
		if err != nil {
			limittest.CheckError(t, "a peer that has no address", err, 300)
		}
	}
	for bits, want := range map[int]string{128: "2001:db8::1/128", 48: "2001:db8::/48", 1: "::/1"} {
		key, err := byAddress(t, AddressOptions{IPv6Bits: bits})(&http.Request{RemoteAddr: "[2001:db8::1]:1"})
		if key != want || err != nil {
			t.Errorf("%d bits: %q, %v", bits, key, err)
		}
	}
}

// Faults 53, 54, 55, 114: the rightmost hop that is no trusted proxy is the client, whatever the
// client has written to the left of it.
func TestForwardedFor(t *testing.T) {
	const peer, outside = "10.0.0.1:99", "203.0.113.9:99"
	for _, c := range []struct {
		remote string
		lines  []string
		want   string // by default
		strict string // "": no key
	}{
		// A peer that is not trusted can say what it likes.
		{outside, []string{"192.0.2.1"}, "203.0.113.9", "203.0.113.9"},
		{outside, []string{"10.0.0.2, 10.0.0.3"}, "203.0.113.9", "203.0.113.9"},
		{"[2001:db8::1]:1", []string{"192.0.2.1"}, "2001:db8::/64", "2001:db8::/64"},
		// One that is trusted appends the client.
		{peer, []string{"192.0.2.1"}, "192.0.2.1", "192.0.2.1"},
		{"[::ffff:10.0.0.1]:1", []string{"192.0.2.1"}, "192.0.2.1", "192.0.2.1"},
		{peer, []string{"198.51.100.66,192.0.2.1"}, "192.0.2.1", "192.0.2.1"},
		{peer, []string{"198.51.100.66", "192.0.2.1"}, "192.0.2.1", "192.0.2.1"},
		{peer, []string{"192.0.2.1", "10.1.1.1, 10.0.0.7"}, "192.0.2.1", "192.0.2.1"},
		{peer, []string{"192.0.2.1, ::ffff:10.1.1.1"}, "192.0.2.1", "192.0.2.1"},
		{peer, []string{"192.0.2.1:8080"}, "192.0.2.1", "192.0.2.1"},
		{peer, []string{"::ffff:192.0.2.1"}, "192.0.2.1", "192.0.2.1"},
		{peer, []string{"64:ff9b::192.0.2.1"}, "192.0.2.1", "192.0.2.1"}, // by a translator
		{"[64:ff9b::c000:201]:443", nil, "192.0.2.1", "192.0.2.1"},
		{"[64:ff9b::a00:1]:443", []string{"192.0.2.1"}, "64:ff9b::/64", "64:ff9b::/64"}, // is no proxy of ours
		{peer, []string{"2001:db8::5"}, "2001:db8::/64", "2001:db8::/64"},
		// All are trusted: the leftmost has asked.
		{peer, []string{"10.0.0.9, 10.0.0.8"}, "10.0.0.9", "10.0.0.9"},
		// The proxy does not say who it is.
		{peer, nil, "10.0.0.1", ""},
		{peer, []string{""}, "10.0.0.1", ""},
		{peer, []string{"192.0.2.1,"}, "192.0.2.1", "192.0.2.1"}, // an empty element is none
		{peer, []string{",", " , "}, "10.0.0.1", ""},
		{peer, []string{"192.0.2.1, unknown"}, "10.0.0.1", ""},
		{peer, []string{"192.0.2.1, garbage, 10.0.0.8"}, "10.0.0.8", ""},
		{peer, []string{"192.0.2.1, 1.2.3"}, "10.0.0.1", ""},
		{peer, []string{"192.0.2.1" + strings.Repeat(", 10.0.0.2", maxHops+1)}, "10.0.0.2", ""},
		{"@", []string{"192.0.2.1"}, "", ""},
	} {
		for strict, want := range map[bool]string{false: c.want, true: c.strict} {
			key, err := byAddress(t, AddressOptions{Trusted: proxies, Header: XForwardedFor, Strict: strict})(&http.Request{
				RemoteAddr: c.remote,
				Header:     http.Header{"X-Forwarded-For": c.lines, "Forwarded": {"for=198.51.100.1"}, "X-Real-Ip": {"198.51.100.2"}},
			})
			if key != want || errors.Is(err, ErrNoKey) != (want == "") {
				t.Errorf("%s, %.60q, strict %t: %q, %v, want %q", c.remote, c.lines, strict, key, err, want)
			}
		}
	}
}

// Faults 53, 54, 55, 114: the same in the syntax of RFC 7239, in which a client can open a quote
// before the proxy appends.
func TestForwarded(t *testing.T) {
	const peer, none = "10.0.0.1:99", "10.0.0.1"
	for _, c := range []struct {
		lines []string
		want  string
	}{
		{[]string{"for=192.0.2.1"}, "192.0.2.1"},
		{[]string{"For=192.0.2.1;Proto=https;by=203.0.113.43"}, "192.0.2.1"},
		{[]string{`proto=https; FOR="192.0.2.1:80"`}, "192.0.2.1"},
		{[]string{`for="[2001:db8:cafe::17]:4711"`}, "2001:db8:cafe::/64"},
		{[]string{`for="\1\92.0.2.1"`}, "192.0.2.1"},
		{[]string{`for=198.51.100.1, for=192.0.2.1`}, "192.0.2.1"},
		{[]string{`for=198.51.100.1`, `for=192.0.2.1,for=10.0.0.5`}, "192.0.2.1"},
		{[]string{`for=192.0.2.1;host="a,b;for=198.51.100.1"`}, "192.0.2.1"},
		{[]string{`for=192.0.2.1;host="\",for=198.51.100.1,\""`}, "192.0.2.1"},
		{[]string{`for=", for=192.0.2.1`}, "192.0.2.1"},
		{[]string{`for="\", for="192.0.2.1"`}, "192.0.2.1"},
		{[]string{`for="x\\\", for="192.0.2.1";proto=https`}, "192.0.2.1"},
		{[]string{`for="198.51.100.1", "", for="[::ffff:192.0.2.1]"`}, "192.0.2.1"},
		// The proxy does not say who it is.
		{[]string{`for=192.0.2.1, for=unknown`}, none},
		{[]string{`for=192.0.2.1, for=`}, none},
		{[]string{`for=192.0.2.1, proto=https`}, none},
		{[]string{`for=192.0.2.1,`}, "192.0.2.1"}, // an empty element is none
		{[]string{`,`}, none},
		{[]string{`for=198.51.100.1;for=192.0.2.1`}, none},
		{[]string{`for=192.0.2.1;=x`}, none},
		{[]string{`for=192.0.2.1;`}, "192.0.2.1"}, {[]string{`for=192.0.2.1;;proto=https`}, "192.0.2.1"}, {[]string{`;for=192.0.2.1 ; host=a.example:443`}, "192.0.2.1"}, {[]string{`;`}, none},
		{[]string{`for =192.0.2.1`}, none},
		{[]string{`for="192.0.2.1`}, none},
		{[]string{`for=192.0.2.1"`}, none},
		{[]string{`for="192.0.2.1"x`}, none},
		{[]string{`for="[2001:db8::1]:"`}, none},
		{[]string{"192.0.2.1"}, none},
	} {
		key, err := byAddress(t, AddressOptions{Trusted: proxies, Header: Forwarded})(&http.Request{
			RemoteAddr: peer, Header: http.Header{"Forwarded": c.lines, "X-Forwarded-For": {"198.51.100.3"}},
		})
		if key != c.want || err != nil {
			t.Errorf("%q: %q, %v, want %q", c.lines, key, err, c.want)
		}
	}
}

// A proxy on a Unix domain socket has no address. net/http says "@".
func TestUnixPeer(t *testing.T) {
	key := byAddress(t, AddressOptions{TrustUnix: true, Header: XForwardedFor})
	for name, want := range map[string]string{"X-Forwarded-For": "192.0.2.1", "Forwarded": ""} {
		got, err := key(&http.Request{RemoteAddr: "@", Header: http.Header{name: {"192.0.2.1"}}})
		if got != want || errors.Is(err, ErrNoKey) != (want == "") {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
}

func TestByAddressErrors(t *testing.T) {
	for name, o := range map[string]AddressOptions{
		"proxies without a header": {Trusted: proxies},
		"a header without proxies": {Header: XForwardedFor},
		"no such header":           {Trusted: proxies, Header: 3},
		"everybody":                {Trusted: prefixes("0.0.0.0/0"), Header: Forwarded},
		"everybody by IPv6":        {Trusted: prefixes("10.0.0.0/8", "::/0"), Header: Forwarded},
		"everybody, mapped":        {Trusted: prefixes("::ffff:0.0.0.0/96"), Header: Forwarded},
		"no prefix":                {Trusted: make([]netip.Prefix, 1), Header: Forwarded},
		"too few bits":             {IPv6Bits: -1},
		"too many bits":            {IPv6Bits: 129},
	} {
		if key, err := ByAddress(o); err == nil || key != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Faults 53, 54, 55: whatever is in front of it, an address that a trusted proxy has appended
// is the client; from another peer nothing counts but its address; no key is empty.
func FuzzClientAddr(f *testing.F) {
	for _, seed := range []string{
		"", ",", `for="`, `for="\`, "198.51.100.1", "for=198.51.100.1;for=", `a="b\\\"`, "10.0.0.1", "unknown", "[::1", "::ffff:1.2.3.4%x", "\x00\xff",
	} {
		f.Add(seed, seed, true)
		f.Add("192.0.2.77:1", seed, false)
	}
	plain := byAddress(f, AddressOptions{})
	f.Fuzz(func(t *testing.T, remote, written string, isForwarded bool) {
		o, name, appended := AddressOptions{Trusted: proxies, Header: XForwardedFor}, "X-Forwarded-For", "192.0.2.1"
		if isForwarded {
			o.Header, name, appended = Forwarded, "Forwarded", `for="192.0.2.1:80";proto=https`
		}
		key := byAddress(t, o)
		ask := func(remote string, lines ...string) string {
			k, err := key(&http.Request{RemoteAddr: remote, Header: http.Header{name: lines}})
			if (k == "") != errors.Is(err, ErrNoKey) || len(k) > 64 {
				t.Fatalf("%q, %q: key %q, %v", remote, lines, k, err)
			}
			return k
		}
		for _, lines := range [][]string{{written, appended}, {written + ", " + appended}, {written, written, appended + "," + strings.ReplaceAll(appended, "192.0.2.1", "10.0.0.5")}} {
			if k := ask("10.0.0.1:1", lines...); k != "192.0.2.1" {
				t.Errorf("%q: client %q", lines, k)
			}
		}
		if k := ask("203.0.113.5:1", written); k != "203.0.113.5" {
			t.Errorf("a peer that is not trusted wrote %q and was %q", written, k)
		}
		ask("10.0.0.1:1", written)
		ask(remote, written)
		want, err := plain(&http.Request{RemoteAddr: remote})
		if addr, parsed := netip.ParseAddrPort(remote); parsed == nil && err == nil {
			if a := addr.Addr().WithZone("").Unmap(); a.Is4() && want != a.String() || a.Is6() && !netip.MustParsePrefix(want).Contains(a) {
				t.Errorf("%q: key %q", remote, want)
			}
		}
	})
}
