package hybrid

import (
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

// What leases admit, which the table counts, and what the tally counts add up to all checks:
// of a short key and of a long one, admitted or not, or by a rule that refuses nobody.
func TestStatsCountEachDecisionOnce(t *testing.T) {
	l, err := New(nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Shutdown(t.Context())
	const full, asked = 1000, 3000
	rule, dry := limit.Must(limit.TokenBucket("day", full, 24*time.Hour, full)), limit.Must(limit.TokenBucket("dry", full, 24*time.Hour, full)).DryRun()
	const long = "a key that is longer than those that are hashed as short ones"
	ways := []func() bool{
		func() bool { return l.Allow("named", rule) },
		func() bool { return l.Take("taken", rule, 1).Allowed },
		func() bool { return l.Allow(long, rule) },
		func() bool { return l.Take(long+", taken", rule, 1).Allowed },
	}
	for i := range asked {
		for j, ask := range ways {
			if ask() != (i < full) {
				t.Fatalf("check %d, way %d", i, j)
			}
		}
		if !l.Allow("dry", dry) || !l.Take("dry and taken", dry, 1).Allowed {
			t.Fatal("a dry run refuses")
		}
		if i%250 != 249 {
			continue
		}
		s, n, w := l.Figures(), min(i+1, full), len(ways)
		if s.Allowed.Local != uint64((w+2)*n) || s.AdmittedUnits != int64((w+2)*n) || s.Denied.Local != uint64(w*(i+1-n)) || s.WouldRefuse != uint64(2*(i+1-n)) {
			t.Errorf("after %d checks of each: %+v, %+v, %d units, %d but for dry runs", i+1, s.Allowed, s.Denied, s.AdmittedUnits, s.WouldRefuse)
		}
		want := []inside.RuleFigures{
			{Name: "day", Allowed: inside.Outcomes{Local: uint64(w * n)}, Denied: inside.Outcomes{Local: uint64(w * (i + 1 - n))}},
			{Name: "dry", Allowed: inside.Outcomes{Local: uint64(2 * n)}, WouldRefuse: uint64(2 * (i + 1 - n))},
		}
		if !slices.Equal(s.Rules, want) {
			t.Errorf("after %d checks of each: %+v, want %+v", i+1, s.Rules, want)
		}
	}
}
