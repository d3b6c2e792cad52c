package main

import (
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/bench/internal/capacity"
	"github.com/hybridlimit/hybridlimit/limit"
)

// row is a load that every limiter is put under.
type row struct {
	rate  int // checks per second, of all nodes
	keys  int // they are asked with a Zipf distribution
	nodes int
	kind  kind
}

// kind is how near to their limits the keys are.
type kind string

const (
	far     kind = "far"     // nobody is ever refused
	at      kind = "at"      // the keys in most use are asked for many times their limit: about half of all checks are refused
	scarce  kind = "scarce"  // 10 a minute: of four nodes each unit is half of what a node has left, and urgent
	spent   kind = "spent"   // each key gets a tenth of the mean rate: about nine of ten checks are refused
	idle    kind = "idle"    // nobody asks any more
	flatOut kind = "flatout" // without a pause: the rate is as high as it gets
)

func (r row) String() string { return fmt.Sprintf("%d/%d/%d/%s", r.rate, r.keys, r.nodes, r.kind) }

// rows are the loads, in the order of the tables.
var rows = []row{
	{1000, 200, 1, far},
	{5000, 2000, 1, far},
	{50000, 20000, 1, far},
	{1000, 200, 4, far},
	{5000, 2000, 4, far},
	{50000, 20000, 4, far},
	{5000, 2000, 1, at},
	{5000, 2000, 4, at},
	{50000, 20000, 4, at},
	{1000, 200, 4, at},
	{1000, 200, 4, spent},
	{5000, 2000, 4, spent},
	{1000, 200, 4, scarce},
	{5000, 2000, 4, scarce},
	{0, 20000, 1, idle},
	{0, 65536, 1, flatOut},
}

// rule is what the keys of a row are limited by.
func (r row) rule(window bool) *limit.Rule {
	n, per := int64(1_000_000), time.Minute
	switch r.kind {
	case at:
		n, per = int64(r.rate)/200, time.Second // the first key is asked for a sixth of the rate, the twentieth for this
	case scarce:
		n = 10
	case spent: // without a burst, which would last for all of the measurement
		return limit.Must(limit.TokenBucket("funnel", int64(6*r.rate/r.keys), time.Minute, 2))
	}
	if window {
		return limit.Must(limit.SlidingWindow("window", n, per))
	}
	return limit.Must(limit.TokenBucket("funnel", n, per, n))
}

// expects returns how many reports a second the formula for operators says that there are.
func (r row) expects(rule *limit.Rule, checksPerSecond float64) float64 {
	if r.kind == idle {
		return 0
	}
	shape := exponent
	if r.kind == flatOut {
		shape = 0 // all keys in turn
	}
	f := capacity.Fleet{Nodes: r.nodes, Rule: rule, Exchange: time.Millisecond}
	return f.Keys(capacity.Zipf(r.keys, shape, checksPerSecond)).All()
}
