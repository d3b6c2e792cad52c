// Package ranges finds the range that an address is in, among thousands, for the middlewares and the
// rules file.
package ranges

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/address"
)

// Table finds the longest prefix that an address is in. Make it with [New]. A nil Table is empty. It
// does not change, and is safe for concurrent use.
type Table struct {
	prefixes []netip.Prefix // plain, as they were given
	outer    []int32        // of each prefix the next shorter one around it, -1: none
	families [2]family      // of IPv4 and of IPv6: no address of one is in a range of the other
}

// family is the addresses of one kind, cut into pieces of which each has one longest prefix.
type family struct {
	from  []number // where each piece begins, in order
	owner []int32  // its prefix; -1: none
}

// number is an address as a number.
type number struct{ hi, lo uint64 }

func (n number) less(m number) bool { return n.hi < m.hi || n.hi == m.hi && n.lo < m.lo }

// Plain returns an address as it is looked up: one of IPv4 if it is one that is mapped into IPv6, and
// without its zone, which means something on the sender's machine alone.
func Plain(a netip.Addr) netip.Addr { return a.WithZone("").Unmap() }

// Check returns a prefix in its plain form, or what is wrong with it.
func Check(p netip.Prefix) (netip.Prefix, error) {
	switch {
	case !p.IsValid():
		return p, errors.New("the range is not valid")
	case p != p.Masked():
		return p, fmt.Errorf("%v has bits behind the first %d: the range is %v, the address alone %v", p, p.Bits(), p.Masked(), netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
	case !p.Addr().Is4In6():
		return p, nil
	}
	return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped), nil
}

// mapped is how many bits of an IPv4 address that is mapped into IPv6 say that it is one.
const mapped = 96

// New makes a table. A prefix that [Check] refuses, and one that is there twice, are errors.
func New(prefixes []netip.Prefix) (*Table, error) {
	t := &Table{prefixes: make([]netip.Prefix, len(prefixes)), outer: make([]int32, len(prefixes))}
	order := make([]int32, len(prefixes))
	for i, p := range prefixes {
		var err error
		if t.prefixes[i], err = Check(p); err != nil {
			return nil, err
		}
		order[i] = int32(i)
	}
	// A range comes before those within it.
	slices.SortFunc(order, func(i, j int32) int {
		p, q := t.prefixes[i], t.prefixes[j]
		return cmp.Or(p.Addr().Compare(q.Addr()), cmp.Compare(p.Bits(), q.Bits()))
	})
	for i := 1; i < len(order); i++ {
		if p := t.prefixes[order[i]]; p == t.prefixes[order[i-1]] {
			return nil, fmt.Errorf("the range %v is there twice", p)
		}
	}
	at, _ := slices.BinarySearchFunc(order, true, func(i int32, _ bool) int {
		if t.prefixes[i].Addr().Is4() { // they are sorted before those of IPv6
			return -1
		}
		return 1
	})
	t.families = [2]family{t.cut(order[:at]), t.cut(order[at:])}
	return t, nil
}

// cut divides the addresses of one family by its prefixes, which are in order.
func (t *Table) cut(order []int32) (f family) {
	var open []int32 // the prefixes around what comes next, the outermost first
	piece := func(from number, owner int32) {
		if last := len(f.from) - 1; last >= 0 && f.from[last] == from {
			f.owner[last] = owner // the piece before has no address
			return
		}
		f.from, f.owner = append(f.from, from), append(f.owner, owner)
	}
	innermost := func() int32 {
		if len(open) == 0 {
			return -1
		}
		return open[len(open)-1]
	}
	shut := func() {
		end, more := after(t.prefixes[innermost()])
		open = open[:len(open)-1]
		if more {
			piece(end, innermost())
		}
	}
	for _, i := range order {
		for len(open) > 0 && !t.prefixes[innermost()].Contains(t.prefixes[i].Addr()) {
			shut()
		}
		t.outer[i] = innermost()
		piece(numberOf(t.prefixes[i].Addr()), i)
		open = append(open, i)
	}
	for len(open) > 0 {
		shut()
	}
	return f
}

// after returns the first number behind a prefix, and whether there is one.
func after(p netip.Prefix) (n number, ok bool) {
	n = numberOf(p.Addr())
	switch free := p.Addr().BitLen() - p.Bits(); {
	case free >= 128:
		return n, false
	case free >= 64:
		n.hi += 1 << (free - 64)
		return n, n.hi != 0
	default:
		was := n.lo
		if n.lo += 1 << free; n.lo < was {
			n.hi++
		}
		return n, n != number{}
	}
}

func numberOf(a netip.Addr) (n number) {
	if a.Is4() {
		for _, b := range a.As4() {
			n.lo = n.lo<<8 | uint64(b)
		}
		return n
	}
	for i, b := range a.As16() {
		if i < 8 {
			n.hi = n.hi<<8 | uint64(b)
		} else {
			n.lo = n.lo<<8 | uint64(b)
		}
	}
	return n
}

// Find returns which of the prefixes of [New] is the longest that an address is in, -1 for none. One of
// IPv6 with one of IPv4 inside is in the ranges of both, and those of IPv4 come first. It allocates nothing.
func (t *Table) Find(a netip.Addr) int {
	inside, i := t.FindBoth(a)
	if inside >= 0 {
		return inside
	}
	return i
}

// FindBoth is Find for those who want both: the range of the IPv4 address inside, and that of the address
// itself.
func (t *Table) FindBoth(a netip.Addr) (inside, i int) {
	if t == nil || !a.IsValid() {
		return -1, -1
	}
	inside, a = -1, Plain(a)
	if v4 := address.Client(a); v4.Is4() && a.Is6() {
		inside = t.find(v4)
	}
	return inside, t.find(a)
}

func (t *Table) find(a netip.Addr) int {
	f := &t.families[0]
	if !a.Is4() {
		f = &t.families[1]
	}
	// The last piece that does not begin behind the address.
	n, low, high := numberOf(a), 0, len(f.from)
	for low < high {
		if mid := int(uint(low+high) / 2); n.less(f.from[mid]) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	if low == 0 {
		return -1
	}
	return int(f.owner[low-1])
}

// FindPrefix returns which of the prefixes is the longest that all addresses of p are in, -1 for none.
func (t *Table) FindPrefix(p netip.Prefix) int {
	if t == nil || !p.IsValid() {
		return -1
	}
	if p.Addr().Is4In6() {
		if p.Bits() < mapped {
			return -1
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
	}
	i := t.find(p.Addr())
	for i >= 0 && t.prefixes[i].Bits() > p.Bits() {
		i = int(t.outer[i])
	}
	return i
}

// Prefix returns a prefix by its number, in its plain form.
func (t *Table) Prefix(i int) netip.Prefix { return t.prefixes[i] }

// Len returns how many prefixes there are.
func (t *Table) Len() int {
	if t == nil {
		return 0
	}
	return len(t.prefixes)
}
