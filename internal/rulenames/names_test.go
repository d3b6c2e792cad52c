package rulenames

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// However many names and shapes there are, no more than the bounds are remembered.
func TestConflictsAreBounded(t *testing.T) {
	reported := 0
	n := Names{OnConflict: func(was, is *limit.Rule) { reported++ }}
	see := func(name string, window time.Duration) { n.See(limit.Must(limit.FixedWindow(name, 10, window)), 0) }
	for range 2 {
		for i := range 2 * maxNames {
			for s := range 2 {
				see(fmt.Sprint("name", i), time.Duration(s+1)*time.Minute)
			}
		}
	}
	if n := n.known.Load(); n != maxNames || reported != maxNames {
		t.Errorf("%d names known, %d reported, want %d", n, reported, maxNames)
	}
	for s := range 100 {
		see("name0", time.Duration(s+5)*time.Second)
	}
	e, _ := n.all.Load("name0")
	if n := len(e.(*named).before); n != maxShapes {
		t.Errorf("%d shapes known, want %d", n, maxShapes)
	}
}

// A rule that replaces another once is no conflict. Rules that are used in turns are one, each
// time that one comes back. It is reported for the first time only.
func TestConflictIsToComeBack(t *testing.T) {
	var reported [][2]*limit.Rule
	n := Names{OnConflict: func(was, is *limit.Rule) { reported = append(reported, [2]*limit.Rule{was, is}) }}
	a, b := limit.Must(limit.FixedWindow("api", 10, time.Minute)), limit.Must(limit.SlidingWindow("api", 10, time.Minute))
	steps := []struct {
		rule      *limit.Rule
		conflicts int64
	}{
		{a, 0}, {a, 0}, {b, 0}, {b, 0}, {a, 1}, {b, 2}, {b.DryRun(), 2}, {a, 3},
	}
	for i, s := range steps {
		if n.See(s.rule, 0); n.Conflicts() != s.conflicts {
			t.Errorf("step %d: %d conflicts, want %d", i, n.Conflicts(), s.conflicts)
		}
	}
	if len(reported) != 1 || reported[0] != [2]*limit.Rule{b, a} {
		t.Errorf("reported %v", reported)
	}
	if o := n.Others(a); len(o) != 1 || arith.Of(o[0]).Algorithm != arith.Of(b).Algorithm {
		t.Errorf("other rules: %v", o)
	}
}

// A rule that is built anew for each check is told once, also beside plans, and as an exact copy. Rules that
// a program keeps are not, however many there are, nor are those of a file that is read again each minute.
func TestRebuiltRules(t *testing.T) {
	build := func(limits int64) *limit.Rule { return limit.Must(limit.PerMinute("api", limits)) }
	kept := []*limit.Rule{build(10), build(20), build(20), build(30).Exact(), build(30), build(30).DryRun()}
	for name, c := range map[string]struct {
		use     func(i int) *limit.Rule
		pause   int64
		rebuilt int64
		told    int
	}{
		"anew":               {func(int) *limit.Rule { return build(10) }, 1, 4998, 1},
		"anew beside a plan": {func(i int) *limit.Rule { return []*limit.Rule{kept[1], build(10)}[i%2] }, 1, 2498, 1},
		"exact copies":       {func(i int) *limit.Rule { return []*limit.Rule{kept[0], kept[0].Exact()}[i%2] }, 1, 2499, 1},
		"kept":               {func(i int) *limit.Rule { return kept[i%len(kept)] }, 1, 0, 0},
		"a thousand plans":   {func(i int) *limit.Rule { return plans[i%len(plans)] }, 1, 0, 0},
		"read again":         {func(int) *limit.Rule { return build(10) }, int64(time.Minute), 4998, 0},
	} {
		told := 0
		n := Names{OnRebuilt: func(*limit.Rule) { told++ }}
		for i := range 5000 {
			n.See(c.use(i), int64(i)*c.pause)
		}
		if d := n.Rebuilt() - c.rebuilt; d < -2 || d > 2 || told != c.told {
			t.Errorf("%s: %d rebuilt, want %d; told %d times", name, n.Rebuilt(), c.rebuilt, told)
		}
	}
}

var plans = func() (list []*limit.Rule) {
	for i := range int64(1000) {
		list = append(list, limit.Must(limit.PerMinute("api", i+1)))
	}
	return list
}()
