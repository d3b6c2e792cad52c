package hybrid_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// What a node has admitted before a reset does not come back, even if its report leaves at the same moment.
func TestRealResetRightAfterATake(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	l, other := newLimiter(t, dial(t, srv.Addr()), hybrid.Options{}), newLimiter(t, dial(t, srv.Addr()), hybrid.Options{})
	rule := limit.Must(limit.FixedWindow("w", 10, 24*time.Hour))
	flush(t, l)
	flush(t, other)
	for i := range 40 {
		key := fmt.Sprint("key ", i)
		l.AllowN(key, rule, 6)
		if err := l.Reset(bg, key, rule); err != nil {
			t.Fatal(err)
		}
		flush(t, l)
		if err := other.Preload(bg, []string{key}, rule); err != nil {
			t.Fatal(err)
		}
		if mine, theirs := l.Peek(key, rule).Remaining, other.Peek(key, rule).Remaining; mine != 10 || theirs != 10 {
			t.Errorf("%s: %d of 10 left here, and %d elsewhere", key, mine, theirs)
		}
	}
}
