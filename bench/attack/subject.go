package main

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

// figures are what a limiter says of its keys.
type figures struct{ Evictions, Displaced int64 }

// subject is the limiter that is measured, or several nodes of one.
type subject interface {
	// ask makes a check of a key, at any node.
	ask(key string, n int64) bool
	// warm lets all nodes know what others have admitted so far of some keys.
	warm(keys []string) error
	// cut takes Redis away or gives it back.
	cut(away bool)
	figures() figures
	close()
}

// process is a limiter of package local.
type process struct {
	lim  *local.Limiter
	rule *limit.Rule
}

func newProcess(c clock.Clock, rule *limit.Rule, maxKeys int) (process, error) {
	lim, err := local.New(local.Options{MaxKeys: maxKeys, Clock: c})
	if err != nil {
		return process{}, fmt.Errorf("local limiter: %w", err)
	}
	return process{lim, rule}, nil
}

func (p process) ask(key string, n int64) bool { return p.lim.AllowN(key, p.rule, n) }
func (p process) warm([]string) error          { return nil }
func (p process) cut(bool)                     {}
func (p process) close()                       { _ = p.lim.Close() } // it has nothing to report

func (p process) figures() figures {
	s := p.lim.Stats()
	return figures{s.Evictions, s.Displaced}
}
