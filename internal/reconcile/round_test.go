package reconcile

import "testing"

// Exchanges that were under way at the same time as one that has failed count with it:
// those that began before it was counted. One that began when it was, or later, is
// another round.
func TestRound(t *testing.T) {
	type failure struct{ began, now int64 }
	for name, c := range map[string]struct {
		failures []failure
		want     []int // rounds after each
	}{
		"one":                       {[]failure{{0, 250}}, []int{1}},
		"under way at once":         {[]failure{{0, 250}, {100, 350}, {249, 499}}, []int{1, 1, 1}},
		"began when it was counted": {[]failure{{0, 250}, {250, 500}}, []int{1, 2}},
		"one after the other":       {[]failure{{0, 250}, {260, 510}, {520, 770}}, []int{1, 2, 3}},
		"a chain that overlaps":     {[]failure{{0, 250}, {200, 450}, {260, 510}, {400, 650}, {510, 760}}, []int{1, 1, 2, 2, 3}},
		"late news of the first":    {[]failure{{0, 250}, {260, 510}, {10, 900}}, []int{1, 2, 2}},
		"failed at once":            {[]failure{{0, 0}, {0, 0}, {1, 1}}, []int{1, 2, 3}}, // refused: each is an answer by itself
		"an early time":             {[]failure{{-500, -250}, {-300, -50}, {-250, 0}}, []int{1, 1, 2}},
	} {
		var r round
		for i, f := range c.failures {
			if r.failed(f.began, f.now); r.fails != c.want[i] {
				t.Errorf("%s: %d rounds after failure %d, want %d", name, r.fails, i+1, c.want[i])
			}
		}
		r.fails = 0 // something was answered
		if r.failed(0, r.at+1000); r.fails != 1 {
			t.Errorf("%s: %d rounds after an answer and a failure that began long before, want 1", name, r.fails)
		}
	}
}
