package resp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/hybridtest"
)

// A program hands a unit back with HL.CHARGE, 24 times in a row, exact or not: none is lost.
//
// Fault 107: units that a client of the server hands back.
func TestHandedBack(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{})
	var text strings.Builder
	text.WriteString("rules:\n")
	for _, numbers := range []string{"algorithm: sliding-window, limit: 5, per: 1h", "algorithm: fixed-window, limit: 5, per: 1h", "algorithm: token-bucket, limit: 5, per: 1h", "algorithm: calendar, limit: 5, per: day"} {
		for _, exact := range []bool{false, true} {
			fmt.Fprintf(&text, "  r%d: {%s, exact: %v}\n", text.Len(), numbers, exact)
		}
	}
	set := ruleset(t, text.String())
	_, addr := listen(t, Options{Limiter: h.Limiter, Rules: set})
	c := connect(t, addr)
	for _, name := range set().Names() {
		for i := range 24 {
			if taken, ok := c.do("HL.TAKE " + name + " alice").([]any); !ok || taken[0] != int64(0) {
				t.Errorf("%s: take %d: %v", name, i, taken)
			}
			if back, ok := c.do("HL.CHARGE " + name + " alice -1").([]any); !ok || back[2] != int64(5) {
				t.Errorf("%s: hand-back %d: %v", name, i, back)
			}
		}
		for i := range 6 {
			if taken, ok := c.do("HL.TAKE " + name + " alice").([]any); !ok || taken[0] != int64(i/5) {
				t.Errorf("%s: take %d of five: %v", name, i, taken)
			}
		}
	}
	if s := h.Limiter.Stats(); s.UnreturnedUnits != 0 {
		t.Errorf("%d units are not given back", s.UnreturnedUnits)
	}
}
