package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/connect"
	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/internal/inspect"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// redisFlags are those of the commands that talk to Redis.
type redisFlags struct {
	connect.Flags
}

// store is a Redis and the ways to ask it.
type store struct {
	*connect.Target
	lim    *remote.Limiter
	survey *inspect.Survey
}

// open returns what the flags name. The caller must close it.
func (f redisFlags) open() (*store, error) {
	target, err := f.Open()
	if err != nil {
		return nil, usage(err)
	}
	s := &store{Target: target}
	if s.lim, err = remote.New(target.UniversalClient, f.Options()); err == nil {
		s.survey, err = inspect.New(target.UniversalClient, redisstore.Options(f.Options()))
	}
	if err != nil {
		target.Close()
		return nil, usage(err)
	}
	return s, nil
}

// failed gives an error of Redis its words and its exit code.
func (s *store) failed(err error) error {
	if err == nil {
		return nil
	}
	code := exitRedis
	var key *limit.KeyError
	switch {
	case errors.As(err, &key):
		code = exitFound
	case errors.Is(err, limit.ErrInvalidN), errors.Is(err, limit.ErrNilRule), errors.Is(err, limit.ErrUnsupported):
		return usage(err)
	}
	return &exitError{code, s.Explain(err)}
}

// prefixScan is among how many keys other prefixes are looked for: a tenth of a second of Redis.
const prefixScan = 100_000

// warnOfLayout says so if processes use this Redis, but not with the prefix or in the layout of
// the flags: what they count is elsewhere then. For other prefixes it looks among about scan keys.
func (p *program) warnOfLayout(s *store, scan int64) {
	fleet, err := s.survey.Fleet(p.ctx)
	if err != nil {
		return
	}
	if len(fleet.Layouts) == 0 {
		if scan == 0 {
			return
		}
		others, _ := s.survey.Prefixes(p.ctx, scan)
		ours := s.survey.Keyspace().Prefix()
		others = slices.DeleteFunc(others, func(prefix string) bool { return prefix == ours }) // its nodes have gone
		if len(others) > 0 {
			fmt.Fprintf(p.errOut, "hybridlimit: no node uses the prefix %s here, but there are nodes with %s: see --prefix\n",
				escape.Quote(ours), quoted(others))
		}
		return
	}
	ours := s.survey.Keyspace().Layout()
	for _, l := range fleet.Layouts {
		if l.Name == ours {
			return
		}
	}
	fmt.Fprintf(p.errOut, "hybridlimit: the nodes here use %s, and this looks at %s: see --shards\n", fleet.Layouts[0].Name, ours)
}

// quoted returns texts for one line: at most five of them.
func quoted(texts []string) string {
	const most = 5
	var list []string
	for _, text := range texts[:min(len(texts), most)] {
		list = append(list, escape.Quote(text))
	}
	if more := len(texts) - most; more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}
