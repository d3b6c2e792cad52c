package local

// flags are what a counter and the reconciler know of each other. They are written
// under the counter's lock.
type flags uint8

const (
	outdated flags = 1 << iota // the view is to be fetched anew, however old it is
	inNormal                   // handed to the reconciler, not collected yet
	inUrgent
	inFlight    // units (or a question) sent, not acknowledged
	raising     // the authority has lost what we know
	quarantined // the authority's copy is broken
	wounded     // and somebody is going to ask it again
	voided      // what is in flight was sent before a reset that we know of
)

func (c *Counter) is(f flags) bool { return c.flags&f != 0 }
func (c *Counter) mark(f flags)    { c.flags |= f }
func (c *Counter) unmark(f flags)  { c.flags &^= f }

func (c *Counter) note(f flags, on bool) {
	if on {
		c.mark(f)
	} else {
		c.unmark(f)
	}
}
