package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// versionCmd prints what this program was built from.
type versionCmd struct{}

// versionJSON is that for programs.
type versionJSON struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Layout   string `json:"layout"` // of what is kept in Redis
}

// Run prints it.
func (versionCmd) Run(p *program) error {
	v := versionJSON{Version: "unknown", Go: runtime.Version(), Layout: redisstore.LayoutVersion}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		v.Version = info.Main.Version
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
	}
	if p.JSON {
		return p.Object(v)
	}
	_, err := fmt.Fprintf(p.out, "hybridlimit %s, %s, layout %s in Redis\n", v.Version, v.Go, v.Layout)
	return err
}
