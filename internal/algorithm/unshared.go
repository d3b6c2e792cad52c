package algorithm

import (
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// unshared is the part of a state that is not shared: there are no leases of it and no
// exchange with an authority.
type unshared struct{}

func (unshared) Reweigh(*limit.Rule, int64, int64, int64)                 {}
func (unshared) Spare(*limit.Rule, int64, Clock) int64                    { return 0 }
func (unshared) Lease(*limit.Rule, int64) (level arith.Span, until int64) { return level, 0 }
func (unshared) Spend(*limit.Rule, int64, int64, int64, arith.Span)       {}
func (unshared) Units() (pending, sent int64)                             { return 0, 0 }
func (unshared) Drain(*limit.Rule, int64) int64                           { return 0 }
func (unshared) HasReturns() bool                                         { return false }
func (unshared) ReturnsAt(*limit.Rule, int64) bool                        { return false }
func (unshared) KnowsClock() bool                                         { return true }
func (unshared) Follow(*limit.Rule, int64, int64, int64, Clock)           {}
func (unshared) Collect(*limit.Rule)                                      {}
func (unshared) Sent(*limit.Rule, int64, int64) (s Sent)                  { return s }
func (unshared) KnownState(*limit.Rule, int64) (level arith.Span, buckets []Bucket) {
	return level, nil
}
func (unshared) KnownUnits(*limit.Rule, int64) int64           { return 0 }
func (unshared) Blank(int64) bool                              { return true }
func (unshared) Forgive(*limit.Rule, int64)                    {}
func (unshared) Settle(*limit.Rule, Answer, int64) (s Settled) { return s }
func (unshared) KeepSent(*limit.Rule, int64)                   {}
func (unshared) KeepSentBack(*limit.Rule, int64)               {}
func (unshared) DropSent(*limit.Rule, int64)                   {}
func (unshared) GiveBack(*limit.Rule) int64                    { return 0 }
func (unshared) Renew(*limit.Rule, Answer, int64) int64        { return 0 }
func (unshared) SettleAlone()                                  {}
