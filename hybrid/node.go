package hybrid

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// maxNodeName is the length of the longest name, in bytes.
const maxNodeName = 128

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// defaultNodeName returns the names of host and program, and the number of the process.
func defaultNodeName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	end := fmt.Sprintf("/%s[%d]", printable(program(), maxNodeName/2), os.Getpid())
	return printable(host, maxNodeName-len(end)) + end
}

// printable returns a text with a question mark for each character that is not printable, cut to a
// number of bytes.
func printable(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unprintable(r) {
			return '?'
		}
		return r
	}, text)
	for len(text) > most {
		_, last := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-last]
	}
	return text
}

// program returns the file name of the executable.
func program() string { return filepath.Base(os.Args[0]) }

// modulePath is the path of this module, as the information about a build has it.
const modulePath = "github.com/hybridlimit/hybridlimit"

// version returns the version of this library in this program; "unknown" if the program was not
// built from a version.
var version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == modulePath && m.Version != "" {
			return m.Version
		}
	}
	return "unknown"
})

// introduce returns what does not change of what a node says about itself.
func introduce(o Options) redisstore.About {
	a := redisstore.About{Version: version(), Fallback: o.Fallback.String(), Started: o.Clock.Now().Milliseconds()}
	if o.NodeName != "-" {
		a.Name, a.Program = o.NodeName, printable(program(), maxNodeName/2)
	}
	return a
}

// about returns what this node says about itself now.
func (d *driver) about() redisstore.About {
	a, s := d.self, d.state.Load()
	a.Mode, a.Since = s.Mode.String(), s.Since.UnixMilli()
	a.Lag = (d.lag + time.Duration(d.lim.stats.Behind.Load())).Milliseconds()
	switch Fallback(d.fallback) {
	case FairShare:
		a.Share = 1 / float64(max(s.Nodes, 1))
	case FullLimit, FailOpen:
		a.Share = 1
	}
	return a
}

// Nodes implements [inside.View].
func (v view) Nodes(ctx context.Context) ([]inside.Node, error) {
	l := v.Limiter
	if l == nil || l.driver == nil {
		return nil, nil
	}
	fleet, err := l.driver.store.Fleet(decision.Given(ctx))
	if err != nil {
		return nil, explain("nodes", err)
	}
	nodes := make([]inside.Node, len(fleet.List))
	for i, live := range fleet.List {
		nodes[i] = nodeOf(live)
	}
	return nodes, nil
}

// nodeOf converts what was read of a node.
func nodeOf(live redisstore.Live) inside.Node {
	a := live.About
	n := inside.Node{ID: live.Name, Name: a.Name, Program: a.Program, Version: a.Version, Share: a.Share,
		Mode: a.Mode, Fallback: a.Fallback, Lag: time.Duration(a.Lag) * time.Millisecond, Gone: live.Left}
	if a.Since != 0 {
		n.Since = time.UnixMilli(a.Since)
	}
	if a.Started != 0 {
		n.Started = time.UnixMilli(a.Started)
	}
	return n
}
