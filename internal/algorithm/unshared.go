package algorithm

import (
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
)

// unshared implements the methods of a [State] that has no leases and no exchange with Redis.
type unshared struct{}

func (unshared) SetMultiplier(*arith.Rule, int64, int64, int64)           {}
func (unshared) Spare(*arith.Rule, int64, Clock) int64                    { return 0 }
func (unshared) Lease(*arith.Rule, int64) (level arith.Span, until int64) { return level, 0 }
func (unshared) Spend(*arith.Rule, int64, int64, int64, arith.Span)       {}
func (unshared) Units() (pending, sent int64)                             { return 0, 0 }
func (unshared) HasReturns() bool                                         { return false }
func (unshared) ReturnsAt(*arith.Rule, int64) bool                        { return false }
func (unshared) Collect(*arith.Rule)                                      {}
func (unshared) Report(*arith.Rule, int64, int64, *report.Report)         {}
func (unshared) KnownState(*arith.Rule, int64) (level arith.Span, buckets []report.Bucket) {
	return level, nil
}
func (unshared) KnownUnits(*arith.Rule, int64) int64                  { return 0 }
func (unshared) FullUntil(*arith.Rule, int64) (int64, bool)           { return 0, false }
func (unshared) ForgetKnown(*arith.Rule, int64)                       {}
func (unshared) Blank(int64) bool                                     { return true }
func (unshared) Settle(*arith.Rule, report.Answer, int64) (s Settled) { return s }
func (unshared) KeepSent(*arith.Rule, int64)                          {}
func (unshared) KeepSentBack(*arith.Rule, int64)                      {}
func (unshared) DropSent(*arith.Rule, int64)                          {}
func (unshared) GiveBack(*arith.Rule) int64                           { return 0 }
func (unshared) Renew(*arith.Rule, report.Answer, int64) int64        { return 0 }
