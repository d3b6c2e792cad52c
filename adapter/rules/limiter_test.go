package rules

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// A running limiter goes on as before while its file is bad.
//
// Fault 64: a bad file neither stops nor loosens a limiter.
func TestLimiterGoesOn(t *testing.T) {
	path := temp(t, one(5))
	f := watched(t, path, Options{})
	lim, err := hybrid.New(nil, hybrid.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Shutdown(t.Context())
	admitted := 0
	take := func() {
		for range 20 {
			if lim.Allow("k", f.Set().For("api", "k")) {
				admitted++
			}
		}
	}
	take()
	for i, bad := range []string{"", "rules: {}\n", one(500) + "foo: 1\n", one(500)[:30], "rules:\n  other: {algorithm: gcra, limit: 5, per: 1s}\n"} {
		write(t, path, bad)
		eventually(t, "the file is refused", func() bool { return f.Stats().Failures > uint64(i) })
		take()
	}
	if admitted != 5 {
		t.Errorf("%d of 5 were admitted", admitted)
	}
	if r := f.Set().Rule("api"); r.Limit() != 5 || r.Period() != time.Hour {
		t.Errorf("%v", r)
	}
}
