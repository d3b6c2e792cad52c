package oracle

import (
	"slices"
	"sort"
)

// series is what one node has admitted of one key, in the order of time, with
// sums up to each entry: a sum over any interval is a difference of two.
//
// An index counts all entries that there ever were; those before base have been
// forgotten.
type series struct {
	base  int
	at    []int64
	all   []int64 // all[i]: units of the entries before base+i
	low   []int64 // the same without those that may be lost
	near  []int64 // and without those that were admitted while the node was cut off;
	apart []int64 // those alone, lost with their node or not

	floor    int       // entries before were admitted before the latest reset,
	ceiling  int       // and those before this one were booked by then
	own      int       // the node knows its entries from this one on by itself
	cutOff   int       // the index after the latest entry of when it was cut off,
	cutOffAt int64     // and when that was
	view     int64     // the edition that it must know,
	heard    int64     // and the latest that it has heard of
	booked   int       // entries before are booked
	bookings []booking // when they were
	ended    bool
	knew     int64 // the edition that it had to know when it ended

	// What a question is about: the entries before cut, and those from mine on.
	cut, mine int
}

// counted returns the units of an entry, if a question is about it.
func (s *series) counted(index int) int64 {
	if index < s.cut || index >= s.mine {
		return s.sum(s.low, index, index+1)
	}
	return 0
}

// shared returns the units of an entry if all know them, or if its node was cut
// off.
func (s *series) shared(index int) int64 {
	if apart := s.sum(s.apart, index, index+1); apart > 0 {
		return apart
	}
	return s.counted(index)
}

// booking says that the entries before mark are booked in an edition, and in
// all that follow it.
type booking struct {
	edition int64
	mark    int
}

func newSeries() *series {
	return &series{all: []int64{0}, low: []int64{0}, near: []int64{0}, apart: []int64{0}}
}

// end returns the index after the last entry.
func (s *series) end() int { return s.base + len(s.at) }

func (s *series) add(at, units int64, lost, apart bool) {
	if n := len(s.at); n > 0 {
		at = max(at, s.at[n-1])
	}
	n := len(s.at)
	s.at, s.all = append(s.at, at), append(s.all, s.all[n]+units)
	low, near, cut := units, units, int64(0)
	if apart {
		near, cut = 0, units
	}
	if lost {
		low, near, cut = 0, 0, 0
	}
	if cut > 0 {
		s.cutOff, s.cutOffAt = s.end(), at
	}
	s.low, s.near, s.apart = append(s.low, s.low[n]+low), append(s.near, s.near[n]+near), append(s.apart, s.apart[n]+cut)
}

// after returns the first entry that is later than a time.
func (s *series) after(at int64) int {
	return s.base + sort.Search(len(s.at), func(i int) bool { return s.at[i] > at })
}

// sum returns what a list of sums says of the entries from one to another.
func (s *series) sum(sums []int64, from, to int) int64 {
	from, to = max(from, s.base), min(to, s.end())
	if from >= to {
		return 0
	}
	return sums[to-s.base] - sums[from-s.base]
}

// markAt returns the index before which all entries were booked in an edition.
func (s *series) markAt(edition int64) int {
	i := sort.Search(len(s.bookings), func(i int) bool { return s.bookings[i].edition > edition })
	if i == 0 {
		return 0
	}
	return s.bookings[i-1].mark
}

// lose marks the entries from one to another as perhaps lost.
func (s *series) lose(from, to int) {
	from, to = max(from, s.base), min(to, s.end())
	if from >= to {
		return
	}
	for _, sums := range [...][]int64{s.low, s.near} {
		from, to := from-s.base, to-s.base
		gone := sums[to] - sums[from]
		for i := from + 1; i < len(sums); i++ {
			if i <= to {
				sums[i] = sums[from]
			} else {
				sums[i] -= gone
			}
		}
	}
}

// prune forgets the booked entries before an index, which no question can be about any more:
// so many at a time, or all of a node that has ended, to which none will be added. It reports
// whether there were so many.
func (s *series) prune(before, many int) bool {
	k := min(before, s.booked) - s.base
	if k < many && (k <= 0 || !s.ended) {
		return false
	}
	s.at, s.all, s.low, s.near, s.apart = s.at[k:], s.all[k:], s.low[k:], s.near[k:], s.apart[k:]
	if s.ended {
		s.at, s.all, s.low = slices.Clone(s.at), slices.Clone(s.all), slices.Clone(s.low)
		s.near, s.apart = slices.Clone(s.near), slices.Clone(s.apart)
	}
	s.base += k
	s.pruneBookings()
	return true
}

// merge makes one entry of those before an index, which all nodes know: no question tells
// them apart, unless it begins or ends at one of them.
func (s *series) merge(before int) {
	k := before - s.base
	for _, end := range [...]int{s.own, s.floor, s.ceiling} {
		if end > s.base {
			k = min(k, end-s.base)
		}
	}
	if k < 2 {
		return
	}
	for _, sums := range [...]*[]int64{&s.all, &s.low, &s.near, &s.apart} {
		(*sums)[k-1] = (*sums)[0]
		*sums = (*sums)[k-1:]
	}
	s.at = s.at[k-1:]
	s.base += k - 1
	s.pruneBookings()
}

// pruneBookings forgets those of entries that are forgotten.
func (s *series) pruneBookings() {
	i := sort.Search(len(s.bookings), func(i int) bool { return s.bookings[i].mark > s.base })
	if i = min(i, max(len(s.bookings)-1, 0)); i > 1 {
		s.bookings = s.bookings[i-1:]
	}
}
