//go:build !linux

package redistest

import "os/exec"

// dieWithParent does nothing here: only Linux offers it.
func dieWithParent(*exec.Cmd) {}
