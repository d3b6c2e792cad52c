package bench

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/bench/internal/ahead"
)

// uniform is the number of keys of the base case. It must be a power of two.
const uniform = 1 << 16

// drawn is how many draws are made ahead of time: a power of two, and many
// more than there are keys in the base case.
const drawn = 1 << 20

// load is a set of keys and the order in which they are asked. Every contender
// of a row gets the same one. Drawing costs one array read whatever the
// distribution is, so that it weighs the same in each row.
type load struct {
	keys  []string
	draws []uint32
	name  string   // as it is called in a benchmark's name, "65536/uniform"
	asked []string // the keys as they are asked when they are known; nil: these very strings
}

// keyNames returns n keys, made before the clock runs.
func keyNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = "user:" + strconv.Itoa(i)
	}
	return names
}

// evenly asks n keys equally often.
func evenly(n int) *load {
	l := newLoad(n, "uniform")
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range l.draws {
		l.draws[i] = rng.Uint32N(uint32(n))
	}
	return l
}

// zipf asks n keys as unevenly as users are: the most popular one of 65,536
// gets about a seventh of the checks.
func zipf(n int) *load {
	l := newLoad(n, "zipf")
	rng := rand.New(rand.NewPCG(2, uint64(n)))
	// Popular keys must not lie side by side in memory: they would not in life.
	place := rng.Perm(n)
	z := rand.NewZipf(rng, 1.1, 1, uint64(n-1))
	for i := range l.draws {
		l.draws[i] = uint32(place[z.Uint64()])
	}
	return l
}

// long is evenly, by keys as many have them: with an identifier of 36 bytes. And they
// are asked as requests are, by strings of their own: to compare a string with itself
// takes no look at it, however long it is.
func long(n int) *load {
	l := evenly(n)
	rng := rand.New(rand.NewPCG(3, uint64(n)))
	for i := range l.keys {
		u := [...]any{rng.Uint32(), rng.Uint32() >> 16, rng.Uint32() >> 16, rng.Uint32() >> 16, rng.Uint64() >> 16}
		l.keys[i] = "user:" + fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", u[:]...)
	}
	l.name = strconv.Itoa(n) + "/long"
	for _, k := range l.keys {
		l.asked = append(l.asked, strings.Clone(k))
	}
	return l
}

func newLoad(n int, dist string) *load {
	return &load{keys: keyNames(n), draws: make([]uint32, drawn), name: strconv.Itoa(n) + "/" + dist}
}

// check asks for one unit of a key.
type check func(key string) bool

// warmUp is how long keys are asked before the clock runs: a limiter may put
// new keys in order in the background. In that time each is asked warmAsks times,
// after which nothing is new about any of them, if that takes no longer than warmMost.
const (
	warmUp   = 300 * time.Millisecond
	warmMost = 3 * time.Second
	warmAsks = 8
)

// warm asks every key at least once, so that all are known, and goes on until they
// are nothing new.
func warm(keys []string, ask check) {
	begun := time.Now()
	for asks := 1; ; asks++ {
		for i, k := range keys {
			if ask(k); i%1024 == 0 && asks > 1 && time.Since(begun) > warmMost {
				return
			}
		}
		if asks == 1 && tried() {
			return
		} else if asks == 1 {
			begun = time.Now()
		} else if asks >= warmAsks && time.Since(begun) > warmUp {
			return
		}
	}
}

// tried reports whether benchmarks are not measured, but only tried once each: then
// there is nothing to warm up for.
func tried() bool { return flag.Lookup("test.benchtime").Value.String() == "1x" }

// run measures checks of a load whose every answer should be want. Answers are
// looked at, which costs everybody the same: a contender that refuses what it
// should admit, or the other way round, is not doing the work of its row.
func (l *load) run(b *testing.B, ask check, want bool) {
	keys, draws := l.asked, l.draws
	if keys == nil {
		keys = l.keys
	}
	bring := bringer(keys, draws)
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		settle(keys, draws, ask)
		wrong, i := 0, 0
		for b.Loop() {
			bring(i)
			if ask(keys[draws[i&(drawn-1)]]) != want {
				wrong++
			}
			i++
		}
		verdict(b, wrong, i, want)
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		if b.N > settled { // not when it is only tried how many there should be
			settle(keys, draws, ask)
			b.ResetTimer()
		}
		var wrong, started atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			// Everybody begins elsewhere in the draws: with the same ones in
			// step they would meet at every key.
			i, bad := int(started.Add(1))*(drawn/61), 0
			for pb.Next() {
				bring(i)
				if ask(keys[draws[i&(drawn-1)]]) != want {
					bad++
				}
				i++
			}
			wrong.Add(int64(bad))
		})
		verdict(b, int(wrong.Load()), b.N, want)
	})
}

// Who asks has the key at hand: it has just read or made it. So keys are brought into the
// processor's cache some checks before they are asked. Else, with many, two fifths of
// the time of a row went into waiting for the benchmark's own array of strings and for
// their bytes. What a limiter keeps of a key is not brought. A few keys are at hand anyway.
const (
	bringFrom = 4096
	bringKey  = 24 // checks ahead
	bringText = 12
)

// bringer returns what has to be called before check i.
func bringer(keys []string, draws []uint32) func(i int) {
	if len(keys) < bringFrom {
		return func(int) {}
	}
	return func(i int) {
		ahead.Fetch(unsafe.Pointer(&keys[draws[(i+bringKey)&(drawn-1)]]))
		fetchText(keys[draws[(i+bringText)&(drawn-1)]])
	}
}

func fetchText(s string) {
	p := unsafe.Pointer(unsafe.StringData(s))
	if ahead.Fetch(p); len(s) > 16 {
		ahead.Fetch(unsafe.Add(p, len(s)-1)) // it may begin in one line and end in the next
	}
}

// settled is how many keys are asked, at the most, before a measurement begins.
const settled = 4 * uniform

// settle asks keys in the order in which they are going to be asked. A benchmark
// begins with a garbage collection, after which what a limiter needs is in nobody's
// cache, and a short one would measure little else.
func settle(keys []string, draws []uint32, ask check) {
	begun := time.Now()
	for i := range min(settled, 4*len(keys)) {
		ask(keys[draws[drawn-1-i]])
		if i%64 == 0 && time.Since(begun) > warmUp/5 {
			return
		}
	}
}

// verdict fails a benchmark that has measured something else than it says. A
// few wrong answers are only reported: a window may turn while it is asked.
func verdict(b *testing.B, wrong, of int, want bool) {
	b.Helper()
	if wrong > of/100 {
		b.Errorf("%d of %d answers were not %v", wrong, of, want)
	} else if wrong > 0 {
		b.ReportMetric(float64(wrong)/float64(of), "wrong/op")
	}
}
