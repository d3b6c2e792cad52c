package hybrid

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/counter"
)

// Fallback is the policy for checks while Redis is unreachable.
type Fallback uint8

// The policies. FairShare is the default.
const (
	// FairShare makes each unit cost as many units as there were live nodes, so that all nodes
	// together admit about one limit. A node always admits at least one unit per limit period.
	FairShare Fallback = iota
	// FullLimit lets each node admit the whole limit.
	FullLimit
	// FailOpen admits every check for no more units than the limit.
	FailOpen
	// FailClosed refuses every check.
	FailClosed
)

var fallbackNames = [...]string{"fair-share", "full-limit", "fail-open", "fail-closed"}

// String returns the policy in lower case, with dashes.
func (f Fallback) String() string {
	if int(f) < len(fallbackNames) {
		return fallbackNames[f]
	}
	return fmt.Sprintf("fallback(%d)", uint8(f))
}

// multiplier returns what a unit costs during an outage, in units, when n nodes are live.
func (f Fallback) multiplier(n int64) int64 {
	switch f {
	case FullLimit:
		return 1
	case FailOpen:
		return counter.MultiplierOpen
	case FailClosed:
		return counter.MultiplierClosed
	}
	return n
}
