package redistest

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the child when its parent dies, also when
// the parent had no chance to clean up.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
