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
	Revision string `json:"revision,omitempty"` // the commit
	Modified bool   `json:"modified,omitempty"` // what was built is not quite that
	Go       string `json:"go"`
	Layout   string `json:"layout"` // of what is kept in Redis
}

// thisVersion returns what the build knows.
func thisVersion() versionJSON {
	v := versionJSON{Version: "unknown", Go: runtime.Version(), Layout: redisstore.LayoutVersion}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return v
	}
	v.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// String returns it as one line.
func (v versionJSON) String() string {
	commit := ""
	if v.Revision != "" {
		commit = ", commit " + v.Revision[:min(len(v.Revision), 12)]
	}
	if v.Modified {
		commit += " and changes"
	}
	return fmt.Sprintf("hybridlimit %s%s, %s, layout %s in Redis", v.Version, commit, v.Go, v.Layout)
}

// Run prints it.
func (versionCmd) Run(p *program) error {
	if p.JSON {
		return p.Object(thisVersion())
	}
	_, err := fmt.Fprintln(p.out, thisVersion())
	return err
}
