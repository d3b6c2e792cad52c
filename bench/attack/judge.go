package main

import (
	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

// judgeKeys is the room of a judge: more than there are guests.
const judgeKeys = 1 << 17

// judge knows what a limiter without an attacker would do. It has what the measured limiter has
// admitted to guests, and nothing else.
type judge struct {
	lim  *local.Limiter
	rule *limit.Rule
}

func newJudge(c clock.Clock, rule *limit.Rule) (*judge, error) {
	lim, err := local.New(local.Options{MaxKeys: judgeKeys, Clock: c})
	return &judge{lim, rule}, err
}

// left returns how many units of a key are left.
func (j *judge) left(key string) int64 { return j.lim.Peek(key, j.rule).Remaining }

// admitted enters units that the measured limiter has admitted. It reports false if they are above
// the limit; then they are not entered.
func (j *judge) admitted(key string, n int64) bool { return j.lim.AllowN(key, j.rule, n) }

func (j *judge) close() { _ = j.lim.Close() } // it has nothing to report
