package hybrid

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/reconcile"
)

// NewCopy is New of a process that was copied from another: it goes by that one's
// name, and in each shard by the number of its latest batch.
func NewCopy(rdb redis.UniversalClient, o Options, id string, seqs map[int]int64) (*Limiter, error) {
	l, err := build(rdb, o)
	if err != nil {
		return nil, err
	}
	l.driver.machine.Resume(id, seqs)
	l.driver.node.Store(&id)
	l.driver.begin()
	return l, nil
}

// UnderRace reports that the race detector is on.
const UnderRace = underRace

// Kept returns how many notices l keeps for keys to come.
func (l *Limiter) Kept() int { return l.link.Kept() }

// Budget returns what a pipeline of l to the server of shard 0 may cost Redis, and what it might have
// when l was new. l must be closed.
func (l *Limiter) Budget() (now, first time.Duration) {
	var is reconcile.Snapshot
	l.driver.machine.Snapshot(&is)
	v := is.Servers[is.Shards[0].Server]
	return v.Budget, is.FirstBudget
}

// Printable is printable.
func Printable(text string, most int) string { return printable(text, most) }
