package bench

import (
	"runtime"
	"sync"
	"testing"
)

// fresh is how many new keys a limiter sees before it is exchanged for an empty
// one, off the clock: memory stays bounded however long the benchmark runs, and
// no key is evicted.
const fresh = 1 << 17

// BenchmarkNewKey: the first check of a key that has never been seen. Those who
// know only the keys they were opened with are not in it.
func BenchmarkNewKey(b *testing.B) {
	keys := keyNames(fresh)
	for _, c := range some(usually(join(inProcess, byRule)), func(c contender) bool { return !c.closed }) {
		b.Run(c.name, func(b *testing.B) {
			b.Run("serial", func(b *testing.B) { newKeys(b, c, keys, 1) })
			b.Run("parallel", func(b *testing.B) { newKeys(b, c, keys, runtime.GOMAXPROCS(0)) })
		})
	}
}

// newKeys measures b.N new keys, divided among goroutines. It does not use
// b.RunParallel, which could not stop the clock for an empty limiter.
func newKeys(b *testing.B, c contender, keys []string, goroutines int) {
	b.ReportAllocs()
	b.StopTimer()
	wrong := 0
	for left := b.N; left > 0; left -= fresh {
		n := min(left, fresh)
		closed := closer{TB: b}
		b.Cleanup(closed.close) // should it not come to the end of the loop
		a := c.open(&closed, keys, generous)
		b.StartTimer()
		wrong += split(keys[:n], a.allow, goroutines)
		b.StopTimer()
		closed.close()
	}
	verdict(b, wrong, b.N, true)
}

// split asks for each of the keys once and returns how many were refused.
func split(keys []string, ask check, goroutines int) (wrong int) {
	refused := make([]int, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		part := keys[len(keys)*g/goroutines : len(keys)*(g+1)/goroutines]
		wg.Go(func() {
			bad := 0
			for _, k := range part {
				if !ask(k) {
					bad++
				}
			}
			refused[g] = bad
		})
	}
	wg.Wait()
	for _, n := range refused {
		wrong += n
	}
	return wrong
}

// closer is a benchmark whose clean-up comes when it is called for, so that one
// limiter is closed before the next is opened.
type closer struct {
	testing.TB
	todo []func()
}

func (c *closer) Cleanup(f func()) { c.todo = append(c.todo, f) }

func (c *closer) close() {
	for i := len(c.todo) - 1; i >= 0; i-- {
		c.todo[i]()
	}
	c.todo = nil
}
