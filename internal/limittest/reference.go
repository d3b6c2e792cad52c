package limittest

import (
	"math/big"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Reference counts units by the definition of a rule, in fractions of any size. It is slow, and obviously right.
type Reference struct {
	rule        *limit.Rule
	units, last map[int64]int64 // windows: by ID; when the last unit came, ns after the bucket began
	log         []Ask           // logs: what was counted
	level       *big.Rat        // leaky bucket: units in it at
	at          int64
}

// NewReference returns a reference that has counted nothing.
func NewReference(r *limit.Rule) *Reference {
	return &Reference{rule: r, units: map[int64]int64{}, last: map[int64]int64{}, level: new(big.Rat)}
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// leaked returns what is in a leaky bucket at now.
func (m *Reference) leaked(now int64) *big.Rat {
	out := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(now-m.at), big.NewInt(arith.Of(m.rule).Units)), big.NewInt(int64(m.rule.Period())))
	if out.Sub(m.level, out); out.Sign() < 0 {
		return new(big.Rat)
	}
	return out
}

// Room returns the whole units that are left at now, negative for a debt.
func (m *Reference) Room(now int64) int64 {
	switch arith.Of(m.rule).Algorithm {
	case arith.TokenBucket:
		left := new(big.Rat).Sub(rat(m.rule.Limit()), m.leaked(now))
		return new(big.Int).Div(left.Num(), left.Denom()).Int64()
	case arith.SlidingLog:
		return m.rule.Limit() - m.logged(now)
	}
	return m.rule.Limit() - m.used(now)
}

// used returns how many units of a window count. Its buckets are kept for ever.
func (m *Reference) used(now int64) (n int64) {
	r := arith.Of(m.rule)
	id := r.Index(now)
	for age := range int64(r.Kept) + 1 {
		n += m.units[id-age]
		if age > 0 && age == int64(r.Kept) {
			n -= Gone(m.rule, m.units[id-age], m.last[id-age], now-r.Begins(id))
		}
	}
	return n
}

// logged returns how many units of a log count.
func (m *Reference) logged(now int64) (n int64) {
	for _, is := range m.log {
		if is.At > now-int64(arith.Of(m.rule).Width) {
			n += is.N
		}
	}
	return n
}

// Fits reports whether n more units stay within the limit.
func (m *Reference) Fits(now, n int64) bool { return n == 0 || n <= m.Room(now) }

// Add counts n units, whether or not they fit.
func (m *Reference) Add(now, n int64) {
	switch arith.Of(m.rule).Algorithm {
	case arith.TokenBucket:
		m.level, m.at = rat(n).Add(m.leaked(now), rat(n)), now
	case arith.SlidingLog:
		m.log = append(m.log, Ask{now, n})
	default:
		if id := arith.Of(m.rule).Index(now); n > 0 {
			m.units[id] += n
			m.last[id] = max(m.last[id], now-arith.Of(m.rule).Begins(id))
		}
	}
}

// Take counts n units if they fit.
func (m *Reference) Take(now, n int64) bool {
	fits := m.Fits(now, n)
	if fits {
		m.Add(now, n)
	}
	return fits
}

// Refund takes up to n units back, the newest first, and returns how many less count.
func (m *Reference) Refund(now, n int64) (back int64) {
	switch arith.Of(m.rule).Algorithm {
	case arith.TokenBucket:
		level := m.leaked(now)
		up := new(big.Int).Add(level.Num(), new(big.Int).Sub(level.Denom(), big.NewInt(1)))
		back = min(n, up.Div(up, level.Denom()).Int64())
		m.level, m.at = level, now
		if m.level.Sub(level, rat(back)); m.level.Sign() < 0 {
			m.level = new(big.Rat)
		}
		return back
	case arith.SlidingLog:
		back = min(n, m.logged(now))
		for left, i := back, len(m.log)-1; left > 0; i-- {
			some := min(left, m.log[i].N)
			m.log[i].N -= some
			left -= some
		}
		return back
	}
	before, newest := m.used(now), arith.Of(m.rule).Index(now)
	for id := newest; n > 0 && id >= newest-int64(arith.Of(m.rule).Kept); id-- {
		some := min(n, m.units[id])
		m.units[id] -= some
		n -= some
	}
	return before - m.used(now)
}
