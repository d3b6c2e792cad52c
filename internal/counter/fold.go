package counter

import (
	"sync"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
)

// A window is folded (see package algorithm) into the leaky bucket that each counter has. All
// code that uses the state of a counter unfolds it. It is folded after the first check of a
// new counter, because many keys are asked once only, and when the authority has answered.
// Code that only looks whether a counter can be forgotten folds it again.

// foldedAway is the more of all counters whose window is folded. It stays empty: all code but
// state and with reads it as such, and no code writes to it.
var foldedAway more

var spareUnfolded = sync.Pool{New: func() any { return new(unfolded) }}

func (c *Counter) isFolded() bool { return c.more == &foldedAway }

// unfold unfolds the window of c, which must be folded. Rule and mode must be those that it
// was folded with: code that changes them unfolds it before, or sums up afterwards.
func (c *Counter) unfold() *algorithm.Window {
	p := spareUnfolded.Get().(*unfolded)
	p.window.Unfold(&c.bucket, c.rule(), modeMultiplier(c.mode()))
	c.bucket = algorithm.LeakyBucket{}
	w := &p.window.Window
	p.more.state, p.more.unfolded = w, p
	c.more = &p.more
	return w
}

// foldLocked folds the window of c, if there is one that can be.
func (c *Counter) foldLocked() {
	m := c.more
	if m == nil || m.unfolded == nil || *m != (more{state: m.state, unfolded: m.unfolded}) {
		return
	}
	p := m.unfolded
	f, ok := p.window.Fold(c.rule(), modeMultiplier(c.mode()))
	if !ok {
		return
	}
	c.bucket, c.more = f, &foldedAway
	*p = unfolded{}
	spareUnfolded.Put(p)
}

// refoldLocked folds the window of c again if it was.
func (c *Counter) refoldLocked(was bool) {
	if was {
		c.foldLocked()
	}
}
