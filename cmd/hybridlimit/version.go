package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// versionCmd prints what this program was built from.
type versionCmd struct{}

// Run prints it.
func (versionCmd) Run(p *program) error {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
	}
	_, err := fmt.Fprintf(p.out, "hybridlimit %s %s\n", version, runtime.Version())
	return err
}
