package oracle

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Steps counts, for one run, in how many steps each check was active: those in
// which no tolerance kept it from failing.
type Steps map[string]int64

// Report sums up the steps of many runs. The zero Report is empty; it is safe
// for concurrent use.
type Report struct {
	mu    sync.Mutex
	runs  int
	steps map[string]int64
	in    map[string]int // runs in which a check was active
}

// Add adds a run. checks names all there are: one that was never active is
// listed too.
func (r *Report) Add(checks []string, s Steps) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runs++; r.steps == nil {
		r.steps, r.in = map[string]int64{}, map[string]int{}
	}
	for _, name := range checks {
		r.steps[name] += s[name]
		if s[name] > 0 {
			r.in[name]++
		}
	}
}

// Rare returns the checks that were active in fewer than half of the runs.
func (r *Report) Rare() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.steps {
		if 2*r.in[name] < r.runs {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// String returns a line per check, and one that names the rare ones.
func (r *Report) String() string {
	rare := r.Rare()
	r.mu.Lock()
	defer r.mu.Unlock()
	var out strings.Builder
	names := make([]string, 0, len(r.steps))
	for name := range r.steps {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&out, "%-48s active in %d steps, in %d of %d runs\n", name, r.steps[name], r.in[name], r.runs)
	}
	if len(rare) > 0 {
		fmt.Fprintf(&out, "active in fewer than half of the runs: %s\n", strings.Join(rare, ", "))
	}
	return out.String()
}
