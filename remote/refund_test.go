package remote

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// use is units that a caller may use from some time on, in us.
type use struct {
	at, n    int64
	reserved limit.Reservation // nil: taken at once
	made     int64
}

// Whatever is reserved, cancelled before it is due, then or later, and refunded:
// at no instant, and in no interval, are more units usable than the capacity and
// what leaks meanwhile. What was cancelled or refunded was not used. That a
// reservation is not cancelled late when others have been since is for the caller
// to see to, see [Reservation.Cancel].
//
// Fault 79: a reservation cancelled when due with others behind it; a refund with a queue behind.
func TestHandedBackOnce(t *testing.T) {
	for i, shape := range []struct {
		c, units int64
		per      time.Duration
	}{{1, 1, time.Second}, {100, 100, 10 * time.Second}, {10, 7, 3 * time.Second}, {41, 997, time.Second}} {
		b := onMini(t)
		for seed := range uint64(limittest.Cases(60, 15)) {
			m := &misuse{t: t, b: b, l: b.limiter(), rule: funnel(t, shape.c, shape.units, shape.per), key: fmt.Sprint(i, seed), rng: rand.New(rand.NewPCG(seed, 79))}
			for range 40 {
				m.step()
			}
			m.neverTooMuch()
		}
	}
}

// misuse asks for units of a funnel, and does not use all that it gets.
type misuse struct {
	t    *testing.T
	b    *backend
	l    *Limiter
	rule *limit.Rule
	key  string
	rng  *rand.Rand
	uses []use
	back int64 // when something was handed back last
}

// step does one thing that a caller may do.
func (m *misuse) step() {
	now, n := m.b.now(), 1+m.rng.Int64N(m.rule.Limit())
	switch m.rng.IntN(8) {
	case 0, 1:
		if take(m.t, m.l, m.key, m.rule, n).Allowed {
			m.uses = append(m.uses, use{at: now, n: n, made: now})
		}
	case 2, 3:
		r, err := m.l.ReserveN(ctx, m.key, m.rule, n)
		if err != nil {
			m.t.Fatal(err)
		}
		m.uses = append(m.uses, use{now + int64((r.Delay()+999)/1000), n, r, now})
	case 4, 5:
		i := len(m.uses) - 1 - m.rng.IntN(6)
		if i < 0 || m.uses[i].reserved == nil || m.uses[i].at < now && m.uses[i].made <= m.back {
			return
		}
		cancel(m.t, m.uses[i].reserved)
		m.uses, m.back = slices.Delete(m.uses, i, i+1), now
	case 6:
		m.refund(now)
	case 7:
		m.wait(now)
	}
}

// refund hands back the newest units, if they are those of a call that was just
// made.
func (m *misuse) refund(now int64) {
	i := len(m.uses) - 1
	for i >= 0 && m.uses[i].at > now {
		i--
	}
	if i < 0 || m.uses[i].at != now || m.uses[i].reserved != nil {
		return
	}
	if _, err := m.l.Refund(ctx, m.key, m.rule, m.uses[i].n); err != nil {
		m.t.Fatal(err)
	}
	m.uses, m.back = slices.Delete(m.uses, i, i+1), now
}

// wait lets time pass: often until something is due.
func (m *misuse) wait(now int64) {
	due := now
	for _, u := range m.uses {
		if u.at > now && (due == now || m.rng.IntN(2) == 0) {
			due = u.at
		}
	}
	if due == now || m.rng.IntN(3) == 0 {
		due = now + 1 + m.rng.Int64N(arith.Of(m.rule).Horizon().Microseconds())
	}
	m.b.advance(time.Duration(due-now) * time.Microsecond)
}

// neverTooMuch fails if more than the capacity and what leaks meanwhile was usable
// between any two times. Who has to wait is told whole microseconds here, rounded
// up: up to one more leaks before the first of them.
func (m *misuse) neverTooMuch() {
	slices.SortFunc(m.uses, func(a, b use) int { return int(a.at - b.at) })
	for i, from := range m.uses {
		sum := int64(0)
		for _, to := range m.uses[i:] {
			sum += to.n
			within := time.Duration(to.at-from.at+1) * time.Microsecond
			if arith.Of(m.rule).Add(arith.Of(m.rule).Full, arith.Span{NS: int64(within)}).Less(arith.Of(m.rule).Cost(sum)) {
				m.t.Errorf("%s, %v: %d units were usable within %v", m.key, m.rule, sum, within)
				return
			}
		}
	}
}
