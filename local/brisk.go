package local

import "github.com/hybridlimit/hybridlimit/limit"

// Nearly all checks are of one unit of a key that has room for it, by a rule that is
// not a new one, weigh one, and tell nobody anything that they do not know. A
// counter that has just answered such a check is brisk: the next one can be answered
// in a few steps, if it is another such. All that it takes is looked at each time, or
// was true when the counter became brisk and changes only under its lock.

// brisk is 0, or the source of the answers and 1, and above that how many of them
// there were, which wraps.
type brisk uint8

const (
	briskSource = 1<<3 - 1
	briskAnswer = 1 << 3
	// A counter that has answered so many checks briskly lends to a slot or a pocket, if it can;
	// else it tries again when the number has wrapped. Every report takes back what is
	// lent: lent after 8 answers, 65,536 shared keys took two goroutines a quarter
	// longer. One that shares nothing begins at steadyAlone.
	steadyAfter, steadyAlone = 24 * briskAnswer, 22 * briskAnswer
)

func briskBy(src limit.Source) brisk { return brisk(src) + 1 }
func (b brisk) source() limit.Source { return limit.Source(b&briskSource - 1) }
func (b brisk) again() brisk         { return b + briskAnswer }

func (b brisk) manner() manner {
	if b&^briskSource == steadyAfter {
		return steady
	}
	return well
}

// after is what follows b when an answer at length, which leaves is, was one that could
// as well have been brisk.
func (b brisk) after(is brisk) (brisk, manner) {
	if b&briskSource == is&briskSource && is != 0 {
		return b.again(), b.manner()
	}
	return is, well
}

// briskLocked says what c is after a check that was answered at length.
func (c *Counter) briskLocked(allowed bool, src limit.Source) brisk {
	switch {
	case !allowed || c.alg() == limit.AlgorithmSlidingLog || modeWeight(c.mode()) != 1:
		return 0
	case c.link() == nil:
		return briskBy(src) + steadyAlone
	case !c.is(inNormal):
		return 0 // there is somebody to be told
	}
	return briskBy(src)
}

// hasten has c, if it is brisk and lends to nobody, lend after two answers more at the
// latest. One that has looked for a slot in vain waits for 32 until it looks again; now
// there is a handle.
func (c *Counter) hasten() {
	c.mu.Lock()
	defer c.mu.Unlock()
	answers := c.brisk &^ briskSource
	soon := answers >= steadyAlone && answers <= steadyAfter // or each new handle would put it off
	if c.brisk != 0 && !soon && c.slot.Load() == nil && c.lentTo() == nil {
		c.brisk = briskBy(c.brisk.source()) + steadyAlone
	}
}

// takeBrisklyLocked admits one unit, if c is brisk and the rest is as it should be. False
// says nothing.
func (c *Counter) takeBrisklyLocked(now int64, rule *limit.Rule, epoch uint8) bool {
	if c.brisk == 0 || c.epoch != epoch || now < c.last || c.law.Load() != rule {
		return false
	}
	p, w := c.part(), c.win()
	if p != nil {
		switch {
		case int32(p.mode.Load()) != c.modeBits.Load(), // there is another weight
			c.pendUnits()+1 >= int64(c.urgentAt) && !c.is(inUrgent): // it has to hurry
			return false
		}
	}
	if w == nil && !c.funnel.takeOne(rule, now) || w != nil && !(w.steady(p) && w.takeOne(rule, now)) {
		return false
	}
	if w == nil {
		c.indebtLocked(1)
	}
	c.last = now
	return true
}

// steady reports whether w goes by what p knows of the authority's clock.
func (w *window) steady(p *Part) bool {
	if p == nil {
		return w.sure
	}
	off, sure := p.clock()
	return sure && w.sure && w.off == off
}

// takeOne is take of one unit that weighs one, in the current bucket.
func (w *window) takeOne(r *limit.Rule, now int64) bool {
	if now+w.off >= w.end || w.pendUnits >= maxPart || !w.fits(r, now, 1) {
		return false
	}
	w.book(r, now, 1, 1)
	return true
}

// takeOne is take of one unit that weighs one.
func (f *funnel) takeOne(r *limit.Rule, now int64) bool {
	at, one := limit.Span{NS: now}, r.One()
	view := r.Add(f.view.Max(at), one)
	if r.Add(at, r.Full()).Less(view) || f.pend.units >= maxPart {
		return false
	}
	f.view = view
	f.pend.tat = r.Add(f.pend.tat.Max(at), one)
	f.pend.units++
	return true
}
