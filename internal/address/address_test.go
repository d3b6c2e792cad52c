package address

import (
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// forms are forms in which programs print an address. %s is one of IPv4.
var forms = []string{
	"%s", "%s:443", "%s:0", "%s:_hidden", `"%s"`, `"%s:443"`, "%s/32", "::ffff:%s", "[::ffff:%s]", "[::ffff:%s]:443",
	"::FFFF:%s", "0:0:0:0:0:ffff:%s", "::ffff:%s%%eth0", "ipv4:%s:443", "ipv6:[::ffff:%s]:443", "ipv6:%%5B::ffff:%s%%5D:443", "/%s:443", "/%s",
	"client.example.com/%s:443", "/[::ffff:%s]:443", "%s/%s:443", "[%s]:443", "[%s]", "::ffff:%s:443",
}

func TestParseIPv4(t *testing.T) {
	want := netip.MustParseAddr("203.0.113.9")
	for _, form := range append(forms, "::ffff:cb00:7109", "[::ffff:CB00:7109]:443") {
		text := strings.ReplaceAll(strings.ReplaceAll(form, "%s", "203.0.113.9"), "%%", "%")
		if a, ok := Parse(text); a != want || !ok {
			t.Errorf("%q: %v, %v", text, a, ok)
		}
	}
}

func TestParseIPv6(t *testing.T) {
	want := netip.MustParseAddr("2001:db8::1")
	for _, text := range []string{
		"2001:db8::1", "2001:DB8::1", "2001:0db8:0000:0000:0000:0000:0000:0001", "2001:db8:0:0:0:0:0:1", "2001:db8::0.0.0.1", "[2001:db8::1]",
		"[2001:db8::1]:443", `"[2001:db8::1]:443"`, "2001:db8::1%eth0", "[2001:db8::1%25]:443", "2001:db8::1/128", "ipv6:[2001:db8::1]:443",
		"ipv6:%5B2001:db8::1%5D:443", "/[2001:db8:0:0:0:0:0:1%3]:443", "/2001:db8:0:0:0:0:0:1:443", "localhost/2001:db8:0:0:0:0:0:1", "[2001:db8::1]:_x",
	} {
		if a, ok := Parse(text); a != want || !ok {
			t.Errorf("%q: %v, %v", text, a, ok)
		}
	}
}

func TestNoAddress(t *testing.T) {
	for _, text := range []string{
		"", " ", " 203.0.113.9", "203.0.113.9\t", "alice", "unknown", "_hidden", "203.0.113", "203.0.113.9.1", "203.0.113.256", "203.0.113.009", "3405803785", "0xcb007109", "203.0.113.9:",
		"203.0.113.9:443:1", "203.0.113.9:http", "203.0.113.9:123456", "203.0.113.9/24", "203.0.113.9/", "203.0.113.0/33", "2001:db8::/64", "2001:db8::1:443/64",
		"203.0.113.9/255.255.255.0", "203.0.113.9/203.0.113.8", "203.0.113.8:443/203.0.113.9", "/tmp/x/203.0.113.9", "a/b/203.0.113.9", "a b/203.0.113.9", "203.0.113.9/032",
		"2001:db8::1/2001:db8::2", "[2001:db8::1", "2001:db8::1]", "[2001:db8::1]443", "[2001:db8::1]:", "2001:db8:::1", ":443", "::1%", `"203.0.113.9`,
		"203.0.113.9, 203.0.113.8", "203.0.113.9 203.0.113.8", "ipv4:", "ipv5:203.0.113.9", "/32", "1/2/3", strings.Repeat("a", 400) + "/203.0.113.9", "203.0.113.9\x00",
		"203.0.113.9\n", "２０３.0.113.9",
	} {
		if a, ok := Parse(text); a.IsValid() || ok {
			t.Errorf("%q: %v, %v", text, a, ok)
		}
	}
}

func TestKey(t *testing.T) {
	for text, want := range map[string]string{
		"203.0.113.9":                          "203.0.113.9",
		"::ffff:203.0.113.9":                   "203.0.113.9",
		"2001:db8::1%eth0":                     "2001:db8::/64",
		"64:ff9b::192.0.2.1":                   "192.0.2.1",
		"64:ff9b::198.51.100.7":                "198.51.100.7",
		"64:ff9b:1::198.51.100.7":              "198.51.100.7",
		"64:ff9b:1:abcd::198.51.100.7":         "198.51.100.7",
		"64:ff9b:1:c000:2:100::":               "192.0.2.1",
		"::ffff:0:192.0.2.1":                   "192.0.2.1",
		"2002:c000:201:5::7":                   "192.0.2.1",
		"2001:0:4136:e378:8000:63bf:3fff:fdfe": "192.0.2.1",
		// Not to be inside: whoever has such an address is nobody of a private network.
		"64:ff9b::10.0.0.1":    "64:ff9b::/64",
		"64:ff9b::127.0.0.1":   "64:ff9b::/64",
		"64:ff9b::0.0.0.0":     "64:ff9b::/64",
		"2002:a00:1::1":        "2002:a00:1::/64",
		"2002:c0a8:101::1":     "2002:c0a8:101::/64",
		"::ffff:0:169.254.1.1": "::/64",
		// Similar to a reserved prefix.
		"64:ff9c::192.0.2.1":   "64:ff9c::/64",
		"64:ff9b:2::192.0.2.1": "64:ff9b:2::/64",
		"64:ff9b::1:192.0.2.1": "64:ff9b::/64",
		"2001:1::3fff:fdfe":    "2001:1::/64",
		"::1":                  "::/64",
		"2001:db8::192.0.2.1":  "2001:db8::/64",
	} {
		a, err := netip.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := Key(a, Bits); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// Whatever is an address is the same in each form, and its key is an address or a prefix that stays itself.
//
// Fault 114: texts that are nearly addresses.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"203.0.113.9:443", "[2001:db8::1%25]:443", "64:ff9b::192.0.2.1", "/2001:db8:0:0:0:0:0:1:443", "ipv6:%5B::1%5D:1", `"::ffff:1.2.3.4"`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, ok := Parse(text)
		if ok != a.IsValid() || ok && (a.Zone() != "" || a.Is4In6()) {
			t.Fatalf("%q: %v, %v", text, a, ok)
		}
		if !ok {
			return
		}
		for _, again := range []string{a.String(), netip.AddrPortFrom(a, 443).String(), "/" + netip.AddrPortFrom(a, 1).String(), `"` + a.String() + `"`, netip.PrefixFrom(a, a.BitLen()).String()} {
			if b, ok := Parse(again); b != a || !ok {
				t.Errorf("%q is %v, but %q is %v", text, a, again, b)
			}
		}
		key := Key(a, Bits)
		if p, err := netip.ParsePrefix(key); err == nil && (p.Bits() != Bits || !p.Contains(Client(a))) {
			t.Errorf("%q: key %q", text, key)
		} else if err != nil && key != Client(a).String() {
			t.Errorf("%q: key %q", text, key)
		}
	})
}
