package rules

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/limit"
)

const exceptions = `
rules:
  api: {algorithm: fixed-window, limit: 10, per: 1h}
  login: {algorithm: fixed-window, limit: 5, per: 1h}
  address: {algorithm: fixed-window, limit: 100, per: 1h, keys: addresses}
plans:
  pro: {api: {limit: 50}}
overrides:
  - {route: GET /health, unlimited: true}
  - {route: POST /login, rules: {login: {limit: 3}}}
  - {route: GET /trial, rules: {api: {blocked: true, dry_run: true}}}
  - {route: GET /off, blocked: true}
  - {route: /grpc.health.v1.Health/Check, unlimited: true}
  - {key: acme, rules: {api: {limit: 60}}}
  - {key: evil, blocked: true}
  - {key: staff, unlimited: true}
  - {key: 198.51.100.7, rules: {address: {limit: 7}}}
  - {key: "[::ffff:198.51.100.8]:443", rules: {address: {limit: 8}}}
  - {key: "2001:db9:1::/64", rules: {address: {limit: 9}}}
  - {prefix: acme-, rules: {api: {limit: 20}}}
  - {prefix: bad-, blocked: true}
  - cidr: [10.0.0.0/8, 2001:db8::/32]
    unlimited: true
  - {cidr: 10.6.0.0/16, blocked: true}
  - {cidr: 10.7.0.0/16, plan: pro}
  - {cidr: 10.8.0.0/16, rules: {login: {limit: 4}}}
  - {cidr: 192.0.2.0/24, rules: {api: {limit: 1000}, address: {limit: 2000, per: 1m}}}
`

func addr(text string) (a netip.Addr) {
	if text != "" {
		a = netip.MustParseAddr(text)
	}
	return a
}

// Who is limited otherwise, and who is not although it looks so.
//
// Fault 103: a route, an address or a key that only looks like an exempt one.
func TestForRequest(t *testing.T) {
	set := must(t, exceptions)
	const open = -1
	for _, c := range []struct {
		name, key, plan, addr, route string
		want                         int64 // the limit
	}{
		{"api", "x", "", "", "", 10},
		{"api", "x", "pro", "", "", 50},
		{"api", "x", "gold", "10.0.0.1", "GET /health", -2}, // a mistake lets nothing pass
		{"nothing", "x", "", "10.0.0.1", "GET /health", -2},
		// Routes.
		{"api", "x", "", "", "GET /health", open},
		{"api", "acme", "pro", "", "GET /health", open},
		{"api", "x", "", "", "/grpc.health.v1.Health/Check", open},
		{"api", "x", "", "", "GET /health/", 10},
		{"api", "x", "", "", "GET /HEALTH", 10},
		{"api", "x", "", "", "GET /x/../health", 10},
		{"api", "x", "", "", "/health", 10},
		{"api", "x", "", "", "POST /login", 10}, // the override says nothing of this rule
		{"login", "x", "", "", "POST /login", 3},
		{"login", "staff", "", "10.0.0.1", "POST /login", 3},
		{"api", "staff", "", "", "GET /off", 0},
		// Addresses.
		{"api", "x", "", "10.0.0.1", "", open},
		{"api", "x", "", "::ffff:10.0.0.1", "", open},
		{"api", "x", "", "2001:db8::1%eth0", "", open},
		{"api", "x", "", "11.0.0.1", "", 10},
		{"api", "x", "", "::10.0.0.1", "", 10},
		{"api", "x", "", "2002:a00:1::", "", 10},
		{"api", "x", "", "10.6.0.1", "", 0},
		{"api", "x", "", "10.7.0.1", "", 50},
		{"login", "x", "", "10.7.0.1", "", 5}, // the plan says nothing of it, so it is the rule
		{"login", "x", "", "10.8.0.1", "", 4},
		{"api", "x", "", "10.8.0.1", "", 10}, // only the longest range counts
		{"api", "x", "pro", "10.8.0.1", "", 50},
		{"api", "x", "", "192.0.2.9", "", 1000},
		// A key that looks like an address is none, unless the file says so.
		{"api", "10.0.0.1", "", "", "", 10},
		{"address", "10.0.0.1", "", "", "", open},
		{"address", "10.6.0.1", "", "", "", 0},
		{"address", "2001:db8::/64", "", "", "", open},
		{"address", "2001:db8::/31", "", "", "", 100},
		{"address", "2001:db9::/64", "", "", "", 100},
		{"address", "10.0.0.1:80", "", "", "", open},
		{"address", "[::ffff:10.6.0.1]:80", "", "", "", 0},
		{"address", "64:ff9b::192.0.2.1", "", "", "", 2000},
		{"address", "2001:db8:0:0:0:0:0:1", "", "", "", open},
		{"address", "198.51.100.7:80", "", "", "", 7},
		{"address", "::ffff:198.51.100.8", "", "", "", 8},
		{"address", "2001:db9:1::5", "", "", "", 9},
		{"api", "198.51.100.7:80", "", "", "", 10},
		{"address", "10.0.0.1, 11.0.0.1", "", "", "", 100},
		{"address", "010.0.0.1", "", "", "", 100},
		{"address", "10.0.0.1", "", "11.0.0.1", "", 100}, // who knows the address need not read the key
		// Several of them: route, key, range, prefix; who is blocked by one is blocked.
		{"api", "acme", "", "10.0.0.1", "", 60},
		{"login", "acme", "", "10.0.0.1", "", open},
		{"api", "acme-1", "", "", "", 20},
		{"api", "acme-1", "", "192.0.2.9", "", 1000},
		{"api", "acme-1", "", "10.8.0.1", "", 20},
		{"api", "evil", "", "10.0.0.1", "GET /health", 0},
		{"api", "bad-1", "", "10.0.0.1", "GET /health", 0},
		{"api", "staff", "", "", "GET /trial", 0}, // a dry run refuses nobody, and so does not win
	} {
		got := int64(-2)
		switch rule := set.ForRequest(c.name, Request{Key: c.key, Plan: c.plan, Addr: addr(c.addr), Route: c.route}); {
		case rule.Valid():
			got = rule.Limit()
		case rule != nil:
			got = open
		}
		if got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
		if c.addr == "" && c.route == "" && c.plan == "" {
			if set.For(c.name, c.key) != set.ForRequest(c.name, Request{Key: c.key}) {
				t.Errorf("%+v: For has another rule", c)
			}
		}
	}
	if r := set.ForRequest("api", Request{Key: "staff", Route: "GET /trial"}); !r.IsDryRun() {
		t.Errorf("%v", r)
	}
	// Whoever has another period in a range has one counter, whatever the address.
	a, b := set.For("address", "192.0.2.1"), set.For("address", "192.0.2.2")
	if a != b || !strings.HasPrefix(a.Name(), "address@key-") {
		t.Errorf("%v and %v", a, b)
	}
}

// What decides is said in words.
func TestLookupSaysWhichRange(t *testing.T) {
	set := must(t, exceptions)
	for key, want := range map[string]string{
		"10.0.0.1": "override of addresses in 10.0.0.0/8: unlimited", "10.6.0.1": "override of addresses in 10.6.0.0/16: blocked",
		"10.7.0.1": "override of addresses in 10.7.0.0/16, which has the plan pro", "192.0.2.1": "override of addresses in 192.0.2.0/24", "11.0.0.1": "rule address",
	} {
		if rule, says := set.lookup("address", "", key); says != want || rule != set.For("address", key) {
			t.Errorf("%s: %v, %q, want %q", key, rule, says, want)
		}
	}
}

// Who is blocked by a range of IPv6 stays blocked if the IPv4 address inside is exempt, and the other way
// round.
func TestRangesOfBothKinds(t *testing.T) {
	set := must(t, `
rules: {address: {algorithm: token-bucket, limit: 5, per: 1m, keys: addresses}}
overrides:
  - {cidr: "2002::/16", blocked: true}
  - {cidr: 198.51.100.0/24, unlimited: true}
  - {cidr: 203.0.113.0/24, blocked: true}
  - {cidr: "64:ff9b::/96", unlimited: true}
`)
	for key, want := range map[string]int64{
		"2002:c633:6401::1": 0, "64:ff9b::203.0.113.9": 0, "203.0.113.9/24": 0, "198.51.100.1": limit.Unlimited().Limit(), "64:ff9b::192.0.2.1": limit.Unlimited().Limit(), "192.0.2.1": 5,
	} {
		if rule := set.For("address", key); rule.Limit() != want {
			t.Errorf("%s: %v", key, rule)
		}
		if a, err := netip.ParseAddr(key); err == nil {
			if rule := set.ForRequest("address", Request{Key: "k", Addr: a}); rule.Limit() != want {
				t.Errorf("a request from %s: %v", key, rule)
			}
		}
	}
}

// All forms of an address are one key, and what is none is an error. Keys of other rules stay as they are.
//
// Fault 114: an address in another form, or by a translator of IPv4, and what is no address.
func TestCounterKey(t *testing.T) {
	set := must(t, exceptions)
	for key, want := range map[string]string{
		"203.0.113.9": "203.0.113.9", "203.0.113.9:443": "203.0.113.9", "[::ffff:203.0.113.9]:443": "203.0.113.9", "/203.0.113.9:443": "203.0.113.9",
		"203.0.113.9/32": "203.0.113.9", "64:ff9b::203.0.113.9": "203.0.113.9", "2001:db8::1": "2001:db8::/64", "[2001:DB8::2%eth0]:443": "2001:db8::/64",
		"2001:db8::/64": "2001:db8::/64", "2001:db8::5/64": "2001:db8::/64", "2001:db8::/56": "2001:db8::/56", "2001:db8::7/128": "2001:db8::/64",
		"203.0.113.9/24": "203.0.113.9", "203.0.113.9/203.0.113.9:443": "203.0.113.9", "203.0.113.9/255.255.255.0": "", "203.0.113.9/198.51.100.1": "",
		"203.0.113.0/24": "203.0.113.0/24", "::ffff:203.0.113.0/120": "203.0.113.0/24",
		"": "", "alice": "", "203.0.113.9, 203.0.113.8": "", "203.0.113.009": "", "3405803785": "", "unknown": "", "203.0.113.0/33": "",
	} {
		got, err := set.CounterKey("address", key)
		if got != want || errors.Is(err, ErrNoAddress) != (want == "") {
			t.Errorf("%q: %q, %v, want %q", key, got, err, want)
		}
		if want != "" {
			if again, err := set.CounterKey("address", got); again != got || err != nil {
				t.Errorf("%q: its key %q has the key %q, %v", key, got, again, err)
			}
		}
		for _, name := range []string{"api", "nothing"} {
			if got, err := set.CounterKey(name, key); got != key || err != nil {
				t.Errorf("%s of %q: %q, %v", name, key, got, err)
			}
		}
	}
	if got, err := (*Set)(nil).CounterKey("address", "alice"); got != "alice" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
