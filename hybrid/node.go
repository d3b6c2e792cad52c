package hybrid

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// Node is a limiter that shares limits through the same Redis and prefix, as it has described itself
// with its latest heartbeat. A node of an older version has only an ID.
type Node struct {
	// ID is its name in Redis, see [Limiter.ID].
	ID string
	// Name is what [Options].NodeName says; Program is the file name of its executable, and
	// Version the version of this library in it. They are empty if the node does not say.
	Name, Program, Version string
	// Mode and Since are those of its [State], Since and Started by the clock of that node.
	Mode           Mode
	Since, Started time.Time
	// Lag is how old its view of a key in use may be: its MaxLag, and by how much Redis does not
	// keep up.
	Lag time.Duration
	// Fallback is its policy in an outage, and Share how much of each limit it admits then, as
	// far as it knows now: 1 is all of it.
	Fallback Fallback
	Share    float64
	// Gone is how long it counts as alive if nothing is heard of it.
	Gone time.Duration
}

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

// Nodes asks Redis which nodes are alive, this one included: of more than 1,000 those that were
// heard last. It is one round trip or two, for people and their tools. Without Redis there is none.
func (l *Limiter) Nodes(ctx context.Context) ([]Node, error) {
	if l == nil || l.driver == nil {
		return nil, nil
	}
	fleet, err := l.driver.store.Fleet(decision.Given(ctx))
	if err != nil {
		return nil, explain("nodes", err)
	}
	nodes := make([]Node, len(fleet.List))
	for i, live := range fleet.List {
		nodes[i] = nodeOf(live)
	}
	return nodes, nil
}

// nodeOf converts what was read of a node. A mode or a policy of a later version is left at zero.
func nodeOf(live redisstore.Live) Node {
	a := live.About
	n := Node{ID: live.Name, Name: a.Name, Program: a.Program, Version: a.Version, Share: a.Share,
		Mode: Mode(max(slices.Index(modeNames[:], a.Mode), 0)),
		Lag:  time.Duration(a.Lag) * time.Millisecond, Gone: live.Left}
	_ = n.Fallback.UnmarshalText([]byte(a.Fallback))
	if a.Since != 0 {
		n.Since = time.UnixMilli(a.Since)
	}
	if a.Started != 0 {
		n.Started = time.UnixMilli(a.Started)
	}
	return n
}
