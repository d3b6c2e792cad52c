package hybrid

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/limit"
)

// What callers get are errors of this package and of the client, and never of package remote.
func TestErrorsDoNotNameRemote(t *testing.T) {
	dial := errors.New("dial")
	for _, cause := range []error{dial, &limit.KeyError{Key: "k", Reason: "WRONGTYPE"}} {
		err := explain("set", fmt.Errorf("remote: %w", cause))
		if !errors.Is(err, cause) || strings.Contains(err.Error(), "remote") {
			t.Error(err)
		}
		var unavailable *UnavailableError
		if errors.As(err, &unavailable) && unavailable.err != cause {
			t.Errorf("the cause is %v", unavailable.err)
		}
	}
	if err := reconcile.Plain(nil); err != nil {
		t.Error(err)
	}
}
