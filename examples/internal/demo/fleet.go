package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

const (
	// between is the time between two requests of a client.
	between = 5 * time.Millisecond
	// pollEvery is the time between two looks at a limiter's state.
	pollEvery = 5 * time.Millisecond
)

// Fleet is the replicas of a service behind one URL, and a client. After the first error its
// methods do nothing.
type Fleet struct {
	Ctx   context.Context
	Out   io.Writer
	URL   string
	Nodes []*hybrid.Limiter
	Err   error

	client Client
}

// Close closes the client's connections.
func (f *Fleet) Close() { f.client.Close() }

// Note keeps an error.
func (f *Fleet) Note(err error) { f.Err = errors.Join(f.Err, err) }

// Await waits until all replicas are in a mode, and know how many they are.
func (f *Fleet) Await(mode hybrid.Mode) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for _, n := range f.Nodes {
		for s := n.State(); f.Err == nil && (s.Mode != mode || s.Nodes != len(f.Nodes)); s = n.State() {
			f.wait(tick)
		}
	}
}

// Share makes all replicas report what they have admitted of some keys, and hear what the
// others have: at once, rather than within a second. What a busy Redis does not answer in time
// is asked again.
func (f *Fleet) Share(rule *limit.Rule, keys ...string) {
	for range 2 { // a flush fetches what the others have reported before it
		for _, n := range f.Nodes {
			f.retry(func() error { return n.Flush(f.Ctx) })
		}
	}
	for _, n := range f.Nodes { // keys that a replica does not know yet
		f.retry(func() error { return n.Preload(f.Ctx, keys, rule) })
	}
}

// retry calls do until it returns no error.
func (f *Fleet) retry(do func() error) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for f.Err == nil && do() != nil {
		f.wait(tick)
	}
}

// Send sends requests from an address, one after the other, and prints how many were answered
// and by whom: a replica answers with its number, from 1 on.
func (f *Fleet) Send(n int, from string) {
	tick := time.NewTicker(between)
	defer tick.Stop()
	all, by := 0, make([]int, len(f.Nodes))
	for ; n > 0 && f.Err == nil; n-- {
		a, err := f.client.Get(f.Ctx, f.URL, "", from)
		f.Note(err)
		if a.Status == http.StatusOK {
			number := 0
			_, err := fmt.Sscan(a.Body, &number)
			f.Note(err)
			by[number-1]++
			all++
		}
		f.wait(tick)
	}
	fmt.Fprintf(f.Out, "%s: %d admitted, by the replicas %v\n", from, all, by)
}

func (f *Fleet) wait(tick *time.Ticker) {
	select {
	case <-f.Ctx.Done():
		f.Note(f.Ctx.Err())
	case <-tick.C:
	}
}
