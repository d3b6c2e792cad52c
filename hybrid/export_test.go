package hybrid

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/limit"
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

// What the tests use of the inside of a limiter.

func (l *Limiter) Figures() inside.Figures               { return view{l}.Figures() }
func (l *Limiter) QuickFigures() inside.Figures          { return view{l}.QuickFigures() }
func (l *Limiter) Nearest(most int) []inside.Explanation { return view{l}.Nearest(most) }
func (l *Limiter) Rules() []*limit.Rule                  { return view{l}.Rules() }
func (l *Limiter) ID() string                            { return view{l}.ID() }
func (l *Limiter) CountInvalid(rule *limit.Rule)         { view{l}.CountInvalid(rule) }
func (l *Limiter) CountExempt(name string)               { view{l}.CountExempt(name) }

func (l *Limiter) Nodes(ctx context.Context) ([]inside.Node, error) { return view{l}.Nodes(ctx) }

func (l *Limiter) Explained(ctx context.Context, key string, rules ...*limit.Rule) ([]inside.Explanation, error) {
	return view{l}.Explain(ctx, key, rules...)
}

func (l *Limiter) Fallback() Fallback { return l.fallback() }
