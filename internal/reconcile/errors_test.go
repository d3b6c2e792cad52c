package reconcile

import (
	"errors"
	"fmt"
	"testing"
)

// The error of the state is that of the client, and does not name package remote.
func TestErrorsDoNotNameRemote(t *testing.T) {
	dial := errors.New("dial")
	c := &Machine{}
	c.noteFailure(fmt.Errorf("remote: %w", dial))
	if c.lastErr != dial {
		t.Errorf("the state says %v", c.lastErr)
	}
}
