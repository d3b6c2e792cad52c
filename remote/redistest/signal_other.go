//go:build !unix

package redistest

import (
	"errors"
	"os"
)

var errNoSignals = errors.New("this system cannot freeze a process")

func freeze(*os.Process) error { return errNoSignals }
func thaw(*os.Process) error   { return errNoSignals }
