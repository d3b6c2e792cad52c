package limit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The text of an error is short and can be printed, whatever the key. Its fields have the whole key.
func TestErrorsOfHostileKeys(t *testing.T) {
	key := limittest.HostileKey()
	rule := limit.Must(limit.FixedWindow("api", 5, time.Minute))
	const words = 200 // what an error says besides
	late := &limit.WaitError{Key: key, Rule: rule, Need: time.Second}
	never := &limit.WaitError{Key: key, Rule: rule, Need: limit.Never}
	broken := &limit.KeyError{Key: key, Reason: "WRONGTYPE"}
	strange := &limit.KeyError{Key: "k", Reason: key}
	limittest.CheckError(t, "late", late, words+escape.MaxQuoted)
	limittest.CheckError(t, "never", never, words+escape.MaxQuoted)
	limittest.CheckError(t, "broken", broken, words+escape.MaxQuoted)
	limittest.CheckError(t, "a strange reason", strange, words+256)
	if !errors.Is(late, context.DeadlineExceeded) || errors.Is(late, limit.ErrTooMany) || errors.Is(never, context.DeadlineExceeded) || !errors.Is(never, limit.ErrTooMany) {
		t.Error("a deadline and a limit that is too small are not told apart")
	}
	for _, w := range []string{`"api"`, "1s"} {
		if !strings.Contains(late.Error(), w) {
			t.Errorf("%q does not say %s", late, w)
		}
	}
	if late.Key != key || broken.Key != key || strange.Reason != key {
		t.Error("a field is cut")
	}
	for _, err := range []error{late, never, broken} {
		if !strings.Contains(err.Error(), escape.Quote(key)) {
			t.Errorf("the key is not as in logs: %v", err)
		}
	}
	// A rule's name may come from a request, too: the constructors bound it.
	name := "\x1b[2J" + strings.Repeat("\xff", arith.MaxNameBytes-4)
	late.Rule = limit.Must(limit.FixedWindow(name, 5, time.Minute))
	limittest.CheckError(t, "a hostile name", late, words+escape.MaxQuoted+4*arith.MaxNameBytes)
	_, err := limit.FixedWindow(key, 5, time.Minute)
	limittest.CheckError(t, "a hostile name that is too long", err, words+4*arith.MaxNameBytes)
}
