// Package doctor checks a Redis for what limiters need: its version, what the user may
// do, settings under which counters are lost or late, and whether it is well. It changes
// nothing, and writes no key.
//
// What it cannot find out, as on a managed Redis that forbids CONFIG, it says and leaves
// open.
package doctor

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/inspect"
)

// Severity says how bad a finding is.
type Severity string

// The severities.
const (
	// Error is what makes limits wrong, or fails calls, now.
	Error Severity = "error"
	// Warning is what will do so when something happens, such as a restart.
	Warning Severity = "warning"
	// Note is what one should know.
	Note Severity = "note"
)

// Finding is one thing that is not as it should be.
type Finding struct {
	ID       string   `json:"id"` // a word that does not change between versions
	Severity Severity `json:"severity"`
	Server   string   `json:"server"`
	What     string   `json:"what"` // is the case
	Why      string   `json:"why"`  // that matters
	Fix      []string `json:"fix"`  // commands, or lines of redis.conf; what to do, if there are none
}

// Unknown is checks that could not be made.
type Unknown struct {
	Server string   `json:"server"`
	IDs    []string `json:"ids"`
	Reason string   `json:"reason"`
}

// Server is one that was looked at.
type Server struct {
	Name    string `json:"name"`
	Product string `json:"product"`
	Version string `json:"version"` // empty if it does not say
	Role    string `json:"role"`
	// Tested reports whether the tests of this library have been run with this version, or
	// with another one of its series. Known says that, and what differs, in words.
	Tested bool   `json:"tested"`
	Known  string `json:"known"`
}

// Report is what a doctor says.
type Report struct {
	Servers  []Server  `json:"servers"`
	Findings []Finding `json:"findings"` // the worst first
	Unknown  []Unknown `json:"unknown"`
	Checks   int       `json:"checks"` // how many there are for each server
}

// Sick reports whether there is a finding that is more than a note.
func (r Report) Sick() bool {
	for _, f := range r.Findings {
		if f.Severity != Note {
			return true
		}
	}
	return false
}

// Options says how to look.
type Options struct {
	// SlowTrip is which round trip is too slow.
	SlowTrip time.Duration
	// SlowCommand is which command is too slow, whoever sends it: Redis answers nobody
	// else meanwhile.
	SlowCommand time.Duration
	// Timeout bounds one call.
	Timeout time.Duration
	// Name is what a server that is no Cluster's is called. Default: its address.
	Name string
	// Cluster tells that the client is that of a Cluster. Encrypted, Local and Password
	// say how it connects.
	Cluster, Encrypted, Local, Password bool
}

// Examine looks at every master. The error is of Redis, if nothing can be said.
func Examine(ctx context.Context, rdb redis.UniversalClient, survey *inspect.Survey, o Options) (Report, error) {
	masters, err := survey.Masters(ctx)
	if err != nil {
		return Report{}, err
	}
	r := Report{Servers: []Server{}, Findings: []Finding{}, Unknown: []Unknown{}, Checks: len(checks)}
	for _, m := range masters {
		f, err := gather(ctx, rdb, m, survey, o.Timeout)
		if err != nil {
			return Report{}, err
		}
		if o.Name != "" && !o.Cluster {
			f.name = o.Name
		}
		r.Servers = append(r.Servers, f.server())
		r.judge(f, o)
	}
	r.order()
	return r, nil
}
