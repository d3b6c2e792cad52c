//go:build !race

package xrate_test

import (
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit/compat/xrate"
	"github.com/hybridlimit/hybridlimit/hybridtest"
)

// Not under the race detector, which allocates by itself.
func TestAllocations(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{})
	for name, lim := range map[string]xrate.Base{"local": alone(t, nil), "hybrid": h.Limiter} {
		o := xrate.Options{}
		if name == "hybrid" {
			o.Clock = h.Clock
		}
		for _, r := range []rate.Limit{1e9, 1e-6, 0, rate.Inf} { // admits all, nearly none, none, and asks nobody
			l, err := xrate.New(lim, "k", "upstream", r, 100, o)
			if err != nil {
				t.Fatal(err)
			}
			now := time.Now()
			if o.Clock != nil {
				now = at(o.Clock)
			}
			l.Allow()
			for call, f := range map[string]func(){
				"Allow": func() { l.Allow() }, "AllowN": func() { l.AllowN(now, 2) }, "skewed": func() { l.AllowN(time.Time{}, 1) },
				"Tokens": func() { l.Tokens() }, "TokensAt": func() { l.TokensAt(now) }, "Limit": func() { l.Limit() }, "Burst": func() { l.Burst() },
			} {
				fewest := testing.AllocsPerRun(200, f)
				for range 4 { // on a busy machine the background of the limiter allocates meanwhile
					if fewest > 0 {
						fewest = min(fewest, testing.AllocsPerRun(200, f))
					}
				}
				if fewest != 0 {
					t.Errorf("%s at %v: %s allocates %v times", name, r, call, fewest)
				}
			}
		}
	}
}
