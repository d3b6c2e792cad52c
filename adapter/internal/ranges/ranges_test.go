package ranges

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func table(t testing.TB, texts ...string) *Table {
	t.Helper()
	var list []netip.Prefix
	for _, s := range texts {
		list = append(list, netip.MustParsePrefix(s))
	}
	made, err := New(list)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// slow is what Find must return: all prefixes are asked, one after another.
func slow(t *Table, a netip.Addr) int {
	best := -1
	for i := range t.Len() {
		if t.Prefix(i).Contains(Plain(a)) && (best < 0 || t.Prefix(i).Bits() > t.Prefix(best).Bits()) {
			best = i
		}
	}
	return best
}

// slowPrefix is what FindPrefix must return, for a plain prefix.
func slowPrefix(t *Table, p netip.Prefix) int {
	best := -1
	for i := range t.Len() {
		if q := t.Prefix(i); q.Bits() <= p.Bits() && q.Contains(p.Addr()) && (best < 0 || q.Bits() > t.Prefix(best).Bits()) {
			best = i
		}
	}
	return best
}

// Fault 103: an address is in a range in whatever form it comes, and in none of the other family.
func TestFind(t *testing.T) {
	all := table(t, "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "::ffff:192.0.2.0/120", "2001:db8::/32", "2001:db8:1::/48", "fe80::/10", "255.255.255.255/32",
		"10.0.0.0/16", "ffff::/16", "224.0.0.0/4")
	for text, want := range map[string]string{
		"10.0.0.0": "10.0.0.0/16", "10.1.2.3": "10.1.2.3/32", "10.1.2.4": "10.1.0.0/16", "10.2.0.0": "10.0.0.0/8", "10.255.255.255": "10.0.0.0/8",
		"11.0.0.0": "", "9.255.255.255": "", "::ffff:10.2.0.0": "10.0.0.0/8", "::ffff:10.1.2.3%eth0": "10.1.2.3/32", "::10.1.2.3": "", "64:ff9b::10.1.2.3": "",
		"192.0.2.255": "192.0.2.0/24", "::ffff:c000:2ff": "192.0.2.0/24", "192.0.3.0": "", "2001:db8::1": "2001:db8::/32", "2001:DB8:1:ffff::": "2001:db8:1::/48",
		"2001:db9::": "", "fe80::1%eth0": "fe80::/10", "fec0::": "", "255.255.255.255": "255.255.255.255/32", "255.255.255.254": "", "0.0.0.0": "", "::": "",
		"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff": "ffff::/16", "239.255.255.255": "224.0.0.0/4", "240.0.0.0": "",
	} {
		got := ""
		if i := all.Find(netip.MustParseAddr(text)); i >= 0 {
			got = all.Prefix(i).String()
		}
		if got != want {
			t.Errorf("%s is in %q, want %q", text, got, want)
		}
	}
	everything := table(t, "::/0", "0.0.0.0/0")
	if everything.Find(netip.MustParseAddr("::ffff:1.2.3.4")) != 1 || everything.Find(netip.MustParseAddr("::1")) != 0 {
		t.Error("families are mixed up")
	}
	if v6 := table(t, "::/0"); v6.Find(netip.MustParseAddr("1.2.3.4")) != -1 || v6.Find(netip.MustParseAddr("::ffff:1.2.3.4")) != -1 {
		t.Error("all of IPv6 has an address of IPv4")
	}
	var none *Table
	if none.Find(netip.MustParseAddr("::1")) != -1 || all.Find(netip.Addr{}) != -1 || none.FindPrefix(netip.MustParsePrefix("::/0")) != -1 || none.Len() != 0 {
		t.Error("what is not there is found")
	}
}

// A key of several addresses is in a range only if all of them are.
func TestFindPrefix(t *testing.T) {
	all := table(t, "2001:db8::/32", "2001:db8::/80", "10.0.0.0/8", "10.0.0.0/24")
	for text, want := range map[string]string{
		"2001:db8::/64": "2001:db8::/32", "2001:db8::/80": "2001:db8::/80", "2001:db8::/96": "2001:db8::/80", "2001:db8::/31": "", "2001:db8:1::/64": "2001:db8::/32",
		"10.0.0.0/8": "10.0.0.0/8", "10.0.0.0/7": "", "10.0.0.7/32": "10.0.0.0/24", "::ffff:10.0.0.0/104": "10.0.0.0/8", "::ffff:10.0.0.0/95": "", "::/0": "",
	} {
		got := ""
		if i := all.FindPrefix(netip.MustParsePrefix(text)); i >= 0 {
			got = all.Prefix(i).String()
		}
		if got != want {
			t.Errorf("%s is in %q, want %q", text, got, want)
		}
	}
}

func TestRangesThatAreWrong(t *testing.T) {
	p := netip.MustParsePrefix
	for want, list := range map[string][]netip.Prefix{
		"10.0.0.1/8 has bits behind the first 8: the range is 10.0.0.0/8, the address alone 10.0.0.1/32": {p("10.0.0.1/8")},
		"2001:db8::1/32 has bits":             {p("2001:db8::1/32")},
		"the range is not valid":              {p("::/0"), {}},
		"the range 10.0.0.0/8 is there twice": {p("10.0.0.0/8"), p("::/0"), p("::ffff:10.0.0.0/104")},
		"::ffff:0.0.0.0/95 has bits":          {p("::ffff:0.0.0.0/95")},
	} {
		if got, err := New(list); got != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v: %v, want %s", list, err, want)
		}
	}
}

// random returns prefixes of which many are nested, and addresses at their ends.
func random(r *rand.Rand, n int) (list []netip.Prefix, addrs []netip.Addr) {
	seen := map[netip.Prefix]bool{}
	for len(list) < n {
		var b [16]byte
		binary.BigEndian.PutUint64(b[:], r.Uint64())
		binary.BigEndian.PutUint64(b[8:], r.Uint64())
		b[0], b[1] = b[0]&3*0x55, b[1]&1*0xff // few beginnings, so that ranges meet, up to both ends
		a := netip.AddrFrom16(b)
		if r.IntN(2) == 0 {
			a = netip.AddrFrom4([4]byte(b[:4]))
		}
		p := netip.PrefixFrom(a, r.IntN(a.BitLen()+1)).Masked()
		if a.Is4In6() || seen[p] {
			continue
		}
		seen[p] = true
		list = append(list, p)
		last := p.Addr().AsSlice()
		for i := p.Bits(); i < 8*len(last); i++ {
			last[i/8] |= 1 << (7 - i%8)
		}
		end, _ := netip.AddrFromSlice(last)
		for _, at := range []netip.Addr{a, p.Addr(), p.Addr().Prev(), end, end.Next()} {
			if at.IsValid() && !at.Is4In6() {
				addrs = append(addrs, at)
			}
		}
	}
	return list, addrs
}

// The fast look-up finds what asking all ranges finds.
func TestFindAgainstAModel(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		list, addrs := random(r, 1+r.IntN(60))
		made, err := New(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addrs {
			if got, want := made.Find(a), slow(made, a); got != want {
				t.Fatalf("seed %d: %v is in %d, want %d of %v", seed, a, got, want, list)
			}
			p := netip.PrefixFrom(a, r.IntN(a.BitLen()+1)).Masked()
			if got, want := made.FindPrefix(p), slowPrefix(made, p); got != want && !p.Addr().Is4In6() {
				t.Fatalf("seed %d: %v is in %d, want %d of %v", seed, p, got, want, list)
			}
		}
	}
}

// many returns ranges as lists of networks have them, half of each family, some nested.
func many(t testing.TB, n int) (*Table, []netip.Addr) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	seen, list, addrs := map[netip.Prefix]bool{}, []netip.Prefix{}, []netip.Addr{}
	for len(list) < n {
		var b [16]byte
		binary.BigEndian.PutUint64(b[:], r.Uint64())
		a, bits := netip.AddrFrom4([4]byte(b[:4])), 12+r.IntN(21)
		if len(list)%2 == 1 {
			b[0], b[1] = 0x20, 0x01
			a, bits = netip.AddrFrom16(b), 24+r.IntN(41)
		}
		if p := netip.PrefixFrom(a, bits).Masked(); !seen[p] {
			seen[p] = true
			list, addrs = append(list, p), append(addrs, a, a.Next())
		}
	}
	made, err := New(list)
	if err != nil {
		t.Fatal(err)
	}
	r.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return made, addrs
}

// A look-up in 10,000 ranges takes less than a microsecond, and allocates nothing.
func TestFindIsFast(t *testing.T) {
	made, addrs := many(t, 10_000)
	i := 0
	if n := testing.AllocsPerRun(1000, func() { made.Find(addrs[i%len(addrs)]); i++ }); n != 0 {
		t.Errorf("a look-up allocates %v times", n)
	}
	if most := len(made.families[0].from) + len(made.families[1].from); most > 2*10_000+2 {
		t.Errorf("%d pieces of 10,000 ranges: a look-up has no bound", most)
	}
	if testing.Short() || raceEnabled {
		return
	}
	// The best of some: other programs may use the machine.
	best := time.Hour.Nanoseconds()
	for range 5 {
		best = min(best, testing.Benchmark(func(b *testing.B) {
			for i := range b.N {
				made.Find(addrs[i%len(addrs)])
			}
		}).NsPerOp())
		if best < 1000 {
			return
		}
	}
	t.Errorf("a look-up takes %d ns, want less than 1,000", best)
}
