package adminlimit

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Options configures a [Page]. The zero value shows everything and changes nothing.
type Options struct {
	// Title is the heading of the page. Default "hybridlimit".
	Title string
	// Hosts are the names, without a port, by which the page may be asked for, besides those of
	// the loopback interface (localhost, 127.0.0.1, ::1): others are refused, because a page of
	// another site may make its own name lead here (DNS rebinding).
	Hosts []string
	// HideKeys leaves out keys, the search for them, and the text of the rules file, which may
	// have keys in it.
	HideKeys bool
	// Authorise reports who asks for an act (a reset, another number of used units, a reload of
	// the rules), and whether it is granted. A request without an Authorization header is then
	// asked for a name and a password (HTTP basic authentication). Acts are logged with who.
	// Default: there are no acts.
	Authorise func(r *http.Request) (who string, ok bool)
	// Rules is the rules file that the limits come from; nil: there is none.
	Rules RulesFile
	// Logger gets a line for each act, at level Info. Default: [slog.Default] at that time.
	Logger *slog.Logger
}

// RulesFile is a file with rules that is followed. *rules.File of adapter/rules is one.
type RulesFile interface {
	// Path returns the name of the file.
	Path() string
	// InForce returns the text of the rules in force, and since when they are.
	InForce() (text string, since time.Time)
	// OnDisk returns the text of the file as it is now. If that is not in force, problem says
	// why, and line where: 0 if it is about no line.
	OnDisk() (text, problem string, line int)
	// Names returns the names of the rules.
	Names() []string
	// Lookup returns the rule by which a key is decided, and what the file says about it. The
	// plan may be empty. The rule is nil if there is no such rule or plan.
	Lookup(name, plan, key string) (rule *limit.Rule, says string)
	// CounterKey returns the key under which a key counts for the rules of that name. An error says why it
	// is none of theirs.
	CounterKey(name, key string) (string, error)
	// Reload reads the file now.
	Reload() error
}

// hostAllowed reports whether the page may be asked for by a Host header.
func (o *Options) hostAllowed(host string) bool {
	name := host
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") && (host[0] == '[' || strings.Count(host, ":") == 1) {
		name = host[:i]
	}
	name = strings.TrimSuffix(strings.Trim(name, "[]"), ".")
	if strings.EqualFold(name, "localhost") || isLoopback(name) {
		return true
	}
	for _, h := range o.Hosts {
		if strings.EqualFold(name, h) {
			return true
		}
	}
	return false
}
