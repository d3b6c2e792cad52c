package rules

import (
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Entry is one key and value of a descriptor, as a request to a rate limit service has them.
type Entry struct{ Key, Value string }

// Descriptor is the limit of a descriptor in the format of envoyproxy/ratelimit. It does not
// change. Do not write to it.
type Descriptor struct {
	// Rule is a sliding window of one unit; [limit.Unlimited] if the file says so; a dry run
	// in shadow mode, and exact if the file says so.
	Rule *limit.Rule
	// Path is the domain and the descriptor as the file has it, such as
	// messaging.message_type_marketing.to_number: what envoyproxy/ratelimit calls its
	// statistics.
	Path string
	// Group is the domain and the keys of the descriptor without its values, for metrics: a value may
	// be a secret, and there may be many.
	Group string
	// Unit is second, minute, hour, day, week, month or year, and RequestsPerUnit the limit;
	// both are empty if it is unlimited.
	Unit            string
	RequestsPerUnit uint32
	// Name is the name of the limit, for others to replace it, and Replaces the names of those
	// that it replaces; see [DropReplaced].
	Name     string
	Replaces []string

	shared []string // by entry: the pattern that stands for the value; "": the value itself
}

// Key returns the key under which a request with these entries is counted by d.Rule: those
// with which d was found. Requests with other values have other keys, unless the file says
// share_threshold.
func (d *Descriptor) Key(entries []Entry) string {
	parts := make([]string, 0, 2*len(entries))
	for i, e := range entries {
		value := e.Value
		if i < len(d.shared) && d.shared[i] != "" {
			value = d.shared[i]
		}
		parts = append(parts, e.Key, value)
	}
	return limit.JoinKey(parts...)
}

// level is the descriptors of one list, with those that are nested in them.
type level struct {
	limit *Descriptor      // of the descriptor that has this list; nil: none
	keys  map[string]*fork // nil: no descriptors
}

// fork is the descriptors of one key: by their values.
type fork struct {
	values   map[string]*level // patterns as well: a request may have one as its value
	patterns patterns
	rest     *level // of the descriptor without a value
}

func (l *level) put(e Entry, to *level) {
	if l.keys == nil {
		l.keys = map[string]*fork{}
	}
	f := l.keys[e.Key]
	if f == nil {
		f = &fork{values: map[string]*level{}}
		l.keys[e.Key] = f
	}
	if e.Value == "" {
		f.rest = to
		return
	}
	f.values[e.Value] = to
	if strings.Contains(e.Value, "*") {
		f.patterns.put(e.Value, to)
	}
}

// find returns where an entry leads: its value comes before a pattern that it matches, and
// the first such pattern of the file before the descriptor without a value. There is no way
// back: what is found here is not given up if the next entry is not found.
func (l *level) find(e Entry) *level {
	f := l.keys[e.Key]
	if f == nil {
		return nil
	}
	if to := f.values[e.Value]; to != nil {
		return to
	}
	if to := f.patterns.find(e.Value); to != nil {
		return to
	}
	return f.rest
}

// count returns how many limits there are.
func (l *level) count() (n int) {
	if l.limit != nil {
		n++
	}
	for _, f := range l.keys {
		for _, to := range f.values {
			n += to.count()
		}
		if f.rest != nil {
			n += f.rest.count()
		}
	}
	return n
}

// Descriptor returns the limit of a descriptor of a request, as envoyproxy/ratelimit finds
// it: the descriptor of the file must have as many levels as there are entries, and at each
// level the most specific match is taken. It returns nil if the file has no limit for it:
// the request is admitted then.
func (s *Set) Descriptor(domain string, entries []Entry) *Descriptor {
	if s == nil || len(entries) == 0 {
		return nil
	}
	at := s.domains[domain]
	for _, e := range entries {
		if at == nil {
			return nil
		}
		at = at.find(e)
	}
	if at == nil {
		return nil
	}
	return at.limit
}

// HasDomain reports whether there are descriptors of that domain.
func (s *Set) HasDomain(domain string) bool { return s != nil && s.domains[domain] != nil }

// DropReplaced sets those limits of one request to nil that another limit of the request
// replaces. Neither counts then but the other. What is unlimited cannot be replaced.
func DropReplaced(found []*Descriptor) {
	var dropped [16]bool // more descriptors are rare
	drop := dropped[:0]
	for _, d := range found {
		drop = append(drop, d != nil && d.Name != "" && d.Rule != limit.Unlimited() && slices.ContainsFunc(found, func(o *Descriptor) bool {
			return o != nil && slices.Contains(o.Replaces, d.Name)
		}))
	}
	for i := range found {
		if drop[i] {
			found[i] = nil
		}
	}
}
