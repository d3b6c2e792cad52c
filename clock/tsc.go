package clock

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// TSC is [System], read from the processor's time stamp counter: to the
// nanosecond, for 9 ns instead of 24. It asks the system's clock every 4 ms, for
// which it allocates some 100 bytes, and follows it: between, it is off by less than
// 1 us. When NTP changes the pace of that clock it is off once by what the change
// makes in 4 ms, and then by 10 us at most for half a second. Readings on different
// processors may be in the wrong order by some 10 ns; a limiter that is told of both
// goes on with the later.
//
// It counts cycles only where Linux on amd64 keeps its own time by them (see
// [TSC.Native]), and gives up if they turn out not to be even; else it is System.
// The zero value is ready to use.
//
// It is not for a bubble of testing/synctest, whose time it does not follow; see
// [Default].
type TSC struct{}

// Native reports whether readings come from the processor: if not, they are the
// system's, and cost what those do.
func (t TSC) Native() bool {
	t.Now()
	return native() && !timeline.Load().broken()
}

var native = sync.OnceValue(countsCycles)

// line says what time it is by the number of cycles since one of them. It never
// changes.
type line struct {
	from   uint64        // cycles at which it begins
	cycles uint64        // how many it is good for; 0: for asking anew each time
	scale  uint64        // ns per cycle, times 2^32
	at     time.Duration // time at from
	faults int           // how often the counter was found to be wrong

	// Where the scale comes from: the latest mark that is old enough, and the
	// next one.
	mark, next mark
}

// mark is a moment on both clocks.
type mark struct {
	cycles uint64
	at     time.Duration
}

const (
	// lineSpan is how long a line is good for.
	lineSpan = 4 * time.Millisecond
	// firstScale is how far apart two marks must be: reading the two clocks one
	// after the other, which takes some 50 ns, weighs 25 millionths then.
	firstScale = 2 * time.Millisecond
	// markEvery is how often there is a new mark, so that the scale is that of the
	// last half second at most.
	markEvery = 250 * time.Millisecond
	// leastScale and mostScale are those of counters of 16 GHz and 62 MHz.
	leastScale, mostScale = 1 << 28, 1 << 36
	// mostOff is how wrong a line may be when it ends, mostChange by which part the
	// pace may change from one line to the next, and mostFaults how often either may
	// be more between two marks.
	mostOff    = 10 * time.Microsecond
	mostChange = 0.1
	mostFaults = 8
	// mostPause is how many cycles may lie between the readings of two clocks that
	// are taken to be of one moment, and readTries how often that is tried.
	mostPause = 512
	readTries = 8
	// mostBehind is by how many cycles a reading may be older than its line.
	mostBehind = 1 << 20
)

// timeline holds the line of the moment.
var timeline atomic.Pointer[line]

func init() { timeline.Store(new(line)) }

// after returns the time so many cycles after l begins, if l is still good then.
func (l *line) after(cycles uint64) time.Duration {
	return l.at + time.Duration(cycles*l.scale>>32)
}

// end is later than all times that l shows.
func (l *line) end() time.Duration { return l.after(l.cycles) }

func (l *line) broken() bool { return l.faults >= mostFaults }

// renew returns the time if l does not tell it. It waits for nobody: whoever comes
// first puts the next line in place.
func renew(l *line) time.Duration {
	if !native() || l.broken() {
		return max(System{}.Now(), l.end())
	}
	for range readTries {
		before := cycles()
		real := System{}.Now()
		now := cycles()
		if t, ok := l.tells(now); ok {
			return t
		}
		if real < baseUnix { // a bubble's: nobody else's business
			return max(l.end(), baseUnix)
		}
		if l.young(real) {
			return max(real, l.at)
		}
		if now-before > mostPause {
			continue
		}
		is := l.follow(now, real)
		if timeline.CompareAndSwap(l, is) {
			return is.at
		}
		l = timeline.Load()
	}
	if t, ok := l.tells(cycles()); ok {
		return t
	}
	return max(System{}.Now(), l.end())
}

// tells returns the time by l, if l is good for it. It begins a little before its
// time: the counter may have been read before the line was, or on a processor that
// is behind.
func (l *line) tells(cycles uint64) (t time.Duration, ok bool) {
	d := cycles - l.from
	switch {
	case d < l.cycles:
		return l.after(d), true
	case -d < mostBehind && l.cycles > 0:
		return l.at, true
	}
	return 0, false
}

// young reports whether it is too early to tell the counter's pace.
func (l *line) young(real time.Duration) bool {
	return l.cycles == 0 && l.mark.at != 0 && real >= l.mark.at && real-l.mark.at < firstScale
}

// follow returns the line that comes after l, from a moment on both clocks on. It
// never begins before l has ended: if l was fast, it goes slower until the clocks
// agree.
func (l *line) follow(now uint64, real time.Duration) *line {
	m := mark{now, real}
	is := &line{from: now, at: max(real, l.end()), faults: l.faults, mark: l.mark, next: l.next}
	if now <= l.mark.cycles || real <= l.mark.at || l.mark == (mark{}) {
		is.mark, is.next = m, m
		return is
	}
	if real-l.next.at >= markEvery {
		is.mark, is.next, is.faults = l.next, m, 0
	}
	scale := float64(real-is.mark.at) / float64(now-is.mark.cycles) * (1 << 32)
	if !(scale > leastScale && scale < mostScale) || l.wrong(now, real, scale) {
		is.faults++
		is.mark, is.next = m, m
		return is
	}
	is.cycles = uint64(float64(lineSpan) / scale * (1 << 32))
	if ahead := is.at - real; ahead > 0 {
		scale *= 1 - min(float64(ahead)/float64(lineSpan), 0.5)
	}
	is.scale = uint64(scale)
	return is
}

// wrong reports whether l, having ended a moment ago, would tell another time than
// it is, or the counter seems to be of another pace by far.
func (l *line) wrong(now uint64, real time.Duration, scale float64) bool {
	if l.scale > 0 && math.Abs(scale/float64(l.scale)-1) > mostChange {
		return true
	}
	if d := now - l.from; l.cycles > 0 && d < 2*l.cycles {
		off := l.after(d) - real
		return off > mostOff || off < -mostOff
	}
	return false
}
