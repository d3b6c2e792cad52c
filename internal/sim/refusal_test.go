package sim

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A notice may be wrong: it was late, of a database that is lost, or forged. It refuses until Redis
// has answered, and no longer (fault plan 89 to 92).

const checkHint = "node: not refused for long by a notice alone"

// noticed notes that a node hears notices: each may refuse from now on, for as long as it takes
// to ask Redis after the next check.
func (o *nodeOracle) noticed(n *simNode, list []report.Notice) {
	for i := range list {
		if k, ok := o.s.air.keyOf(list[i].ID); ok {
			if sh := o.nodes[n].shares[k]; sh != nil {
				sh.wrongly = 0
			}
		}
	}
}

// notForLong checks that a key in use is not refused by a notice alone for longer than it takes to
// ask Redis, while Redis answers. If the notice is right, the answer refuses from then on.
func (o *nodeOracle) notForLong(n *simNode, k oracleKey, units int64, res limit.Result) {
	nb, bk, sh, rule := o.nodes[n], o.books[k], o.nodes[n].shares[k], n.rule(k.rule)
	ill := max(nb.ill[bk.server.id], nb.unwell)
	well := ill == 0 || o.s.now-ill > int64(o.s.settling())
	if res.Source != limit.SourceNotice || units > rule.Limit() || !well || sh.unreadable || o.s.now < nb.stalled || nb.blind[bk.shard] != 0 {
		sh.wrongly = 0
		return
	}
	o.s.fleet.steps[checkHint]++
	if sh.wrongly == 0 {
		sh.wrongly = o.s.now
	}
	if most := o.refresh(rule); o.s.now-sh.wrongly > most {
		o.s.failf("%s: %s has refused %v %q by a notice for %v since it asked, at most %v\nknown: %+v",
			checkHint, n.name, rule, k.key, time.Duration(o.s.now-sh.wrongly), time.Duration(most), sh)
	}
}

// patience is how old the view of a key in use may be that admits: while notices arrive, one that
// was refused by what Redis had answered asks less often.
func (o *nodeOracle) patience(sh *share, r *limit.Rule) int64 {
	d := o.refresh(r)
	if o.s.air != nil && sh.refused != 0 && o.s.now-sh.refused <= d+counter.RefusedLag {
		d += max(counter.RefusedLag-int64(min(o.s.opt.MaxLag, max(o.s.opt.SyncInterval, arith.Of(r).Horizon()/4))), 0)
	}
	return d
}

// roomOf is the notice that a key has room again, by the node that has set it.
func (s *sim) roomOf(k oracleKey, rule *limit.Rule, done redisstore.Renewed) report.Notice {
	return report.Notice{
		ID: redisstore.NoticeIDOf(s.keyspace().CounterKey(rule, k.key)), Shard: s.keyspace().Shard(k.key), Shape: arith.Of(rule).ShapeHash(),
		Limit: rule.Limit(), Gen: done.State.Gen, Now: done.Now,
	}
}
