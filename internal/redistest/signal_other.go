//go:build !unix

package redistest

import (
	"errors"
	"fmt"
	"os"
)

var errNoSignals = fmt.Errorf("%w: this system cannot freeze a process", errors.ErrUnsupported)

func freeze(*os.Process) error { return errNoSignals }
func thaw(*os.Process) error   { return errNoSignals }
