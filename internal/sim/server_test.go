package sim

import (
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// simServer is one server of Redis: a single one, or a master of a cluster.
type simServer struct {
	s     *sim
	id    int
	model *modelRedis
	lua   *luaRedis // the real scripts, beside the model; nil: only the model
	clock simClock

	killed  bool
	frozen  bool
	waiting []func() // requests that a frozen server has not read yet
	// What a test breaks: the list of nodes, and shards.
	listless bool
	broken   func(shard int) bool
	silent   bool // broken ones get no answer, instead of one that refuses them
	epoch    int  // how often it was killed: connections do not survive that
	saved    *savedServer
	split    *splitBrain // an old master serves some nodes; nil: there is one
	copies   bool        // what runs now is a stray copy of an earlier request

	// See work.
	capacity *capacity // nil: boundless
	line     []*job    // that it works on, and that wait
	serving  bool      // a script runs now
	spent    int64     // ns that it takes
	// What it has done, and the longest that an exchange has spent here.
	exchanges, scripts int
	busy, stay         int64 // ns

	// What the oracle must know: after a loss Redis may count a unit twice.
	lost   int64 // when it last lost something
	jumped int64 // when its clock was last set
	jumps  []clockJump
}

// clockJump is a step of a clock.
type clockJump struct{ at, by int64 }

// ago returns when something happened that is so old by the server's clock, or
// later: the clock may have jumped ahead since, but is not taken to go back.
func (v *simServer) ago(age int64) int64 {
	t := v.s.now - age
	for i := len(v.jumps) - 1; i >= 0; i-- {
		if j := v.jumps[i]; j.at > t && j.by > 0 {
			t = min(t+j.by, j.at)
		}
	}
	return t
}

// behind returns by how much the server's clock is behind where it was, for the
// units of the past: they count for so much longer.
func (v *simServer) behind(horizon int64) (most int64) {
	back := int64(0)
	for i := len(v.jumps) - 1; i >= 0; i-- {
		back -= v.jumps[i].by
		if v.jumps[i].at > v.s.now-horizon-back {
			most = max(most, back)
		}
	}
	return most
}

// holds returns how many units the server's data of a key says that there are.
func (v *simServer) holds(key string, r *limit.Rule) float64 {
	now := v.time()
	if arith.Of(r).Algorithm == arith.TokenBucket {
		return max(float64(arith.Of(r).Sub(v.model.leakyAt(now, key).tat, arith.Span{NS: now}).NS)/unit(r), 0)
	}
	sum, oldest := int64(0), arith.Of(r).Index(now)-int64(arith.Of(r).Kept)
	for id, u := range v.model.windowAt(now, key).buckets {
		if id >= oldest {
			sum += u
		}
	}
	return float64(sum)
}

// time returns the server's clock, in whole µs as Redis has it.
func (v *simServer) time() int64 {
	t := v.clock.read(v.s.now) + v.s.skew
	return t - t%1000
}

// arrive lets a request in, at once or when the server goes on.
func (v *simServer) arrive(do func()) {
	if v.frozen {
		v.waiting = append(v.waiting, do)
		return
	}
	do()
}

// ailment is what broken shards get.
func (v *simServer) ailment() error {
	if v.silent {
		return errLate
	}
	return errDown
}

// lose notes that data is about to be lost.
func (v *simServer) lose() { v.lost = v.s.now }

func (v *simServer) freeze() { v.frozen = true }

func (v *simServer) thaw() {
	if v.frozen {
		v.s.oracle.slow = max(v.s.oracle.slow, v.s.now)
		v.s.oracle.struck(v)
	}
	v.frozen = false
	for _, do := range v.waiting {
		v.s.after(v.s.rng.Int64N(ms), do)
	}
	v.waiting = nil
	if !v.serving {
		v.serve()
	}
}

// kill ends the server; what it had not read is gone.
func (v *simServer) kill() {
	v.killed, v.frozen, v.waiting = true, false, nil
	v.epoch++
	v.s.oracle.struck(v)
}

// restart brings a killed server back, with the data it has by then.
func (v *simServer) restart() {
	v.killed = false
	v.s.oracle.struck(v)
}

// wipe loses everything.
func (v *simServer) wipe() {
	v.lose()
	v.model.wipe()
	v.s.fleet.lose(v, nil)
	clear(v.model.poison)
	v.eachLua(func(l *luaRedis) { l.wipe() })
}

// savedServer is a server's data at some time, and up to which edition each key was
// booked then.
type savedServer struct {
	model    *modelRedis
	editions map[*fleetKey]int64
	lua      luaData
}

// save takes a snapshot that rollback may return to.
func (v *simServer) save() *savedServer {
	old := &savedServer{model: v.model.snapshot(), editions: map[*fleetKey]int64{}}
	v.s.fleet.each(v, func(fk *fleetKey) { old.editions[fk] = fk.Snapshot() })
	v.eachLua(func(l *luaRedis) { old.lua = l.save() })
	return old
}

// rollback is a fail-over to a replica that lagged behind, or a restart with what was
// on disk.
func (v *simServer) rollback(old *savedServer) {
	v.lose()
	v.epoch++
	v.s.oracle.struck(v)
	v.model.rollback(old.model.snapshot())
	v.s.fleet.lose(v, old.editions)
	clear(v.model.poison)
	v.eachLua(func(l *luaRedis) { l.rollback(old.lua) })
}

// forget loses one key.
func (v *simServer) forget(key string) {
	v.lose()
	v.model.forget(key)
	v.s.fleet.loseKey(key)
	delete(v.model.poison, key)
	v.eachLua(func(l *luaRedis) { l.forget(key) })
}

// jump sets the server's clock. What has expired by it is gone, even if it is
// set back later.
func (v *simServer) jump(d int64) {
	v.expire()
	v.clock.set(v.s.now, d, v.clock.ppm, false)
	v.jumps = append(v.jumps, clockJump{v.s.now, d})
	v.s.fleet.each(v, func(fk *fleetKey) { fk.Jump(v.s.now, d) })
	v.expire()
	v.s.oracle.serverJumped(v)
}

// expire removes what has expired.
func (v *simServer) expire() {
	v.model.expire(v.time())
	v.eachLua(func(l *luaRedis) { l.at(v.time()) })
}

// forgetLedger loses the record of what a node has sent to a shard.
func (v *simServer) forgetLedger(shard int, node string) {
	v.lose()
	delete(v.model.ledger, ledgerKey{shard, node})
	v.eachLua(func(l *luaRedis) { l.forget(v.s.keyspace().SeqKey(shard, node)) })
}

// poison puts something else in a key's place, or takes it away again.
func (v *simServer) poison(key string, on bool) {
	v.forget(key)
	if on {
		v.model.poison[key] = true
	} else {
		delete(v.model.poison, key)
	}
	v.eachLua(func(l *luaRedis) { l.poison(key, on) })
}

// renew is a Set of one key by somebody; a Reset, if used is 0. It reports
// whether it could be done.
func (v *simServer) renew(key oracleKey, used int64) (done redisstore.Renewed, ok bool) {
	now := v.time()
	redisKey := v.s.keyspace().CounterKey(key.rule, key.key)
	if v.model.poison[redisKey] {
		return done, false
	}
	done = redisstore.Renewed{Now: time.Duration(now), State: v.model.renew(now, redisKey, key.rule, used)}
	v.eachLua(func(l *luaRedis) { l.compareRenew(now, key, used, done) })
	v.s.note(-1-v.id, "set "+key.rule.Name()+" "+key.key, used, done.State.Gen)
	v.s.oracle.renewed(key, v, used, done.State.Gen)
	v.s.fleet.renewed(key, used)
	return done, true
}

func (v *simServer) eachLua(f func(*luaRedis)) {
	if v.lua != nil {
		f(v.lua)
	}
}

// exec executes a batch of a node.
func (v *simServer) exec(n *simNode, b *redisstore.Batch) redisstore.Outcome {
	now := v.time()
	if v.side(n) != v.model {
		out := v.execOld(now, n, b)
		v.takes(func(c *capacity) int64 { return c.batch(b, out.Reply) })
		return out
	}
	replaced := v.s.fleet.replacing(v, n, b)
	v.s.fleet.expiring(v, b)
	out := redisstore.Outcome{Reply: v.model.exec(now, n.name, b)}
	v.s.note(-1-v.id, "batch "+string('0'+rune(out.Reply.Verdict)), int64(b.Shard), b.Seq)
	v.s.fleet.executed(v, n, b, out.Reply, replaced)
	v.s.oracle.executed(v, n, b, out.Reply)
	v.takes(func(c *capacity) int64 { return c.batch(b, out.Reply) })
	if v.lua != nil {
		v.lua.compareExec(now, b, out)
	}
	return out
}

// beat enters a node, counts those that are alive, and returns other layouts than its own.
func (v *simServer) beat(n *simNode, node string) (b redisstore.Beat) {
	t, ttl := v.time(), 3*int64(v.s.opt.HeartbeatInterval)
	b.Now = time.Duration(t)
	v.takes(func(c *capacity) int64 { return c.call + 2*c.op })
	b.Nodes, b.Others = v.side(n).beat(t, v.s.keyspace(), v.s.layout(), node, ttl)
	if v.s.air != nil {
		b.Channel = v.s.air.channelOf(v.side(n))
	}
	b.Others = slices.DeleteFunc(b.Others, func(l string) bool { return l == v.s.layout() })
	if v.lua != nil && v.side(n) == v.model {
		v.lua.compareBeat(node, b)
	}
	return b
}

// seq returns the latest batch that a shard knows of a node.
func (v *simServer) seq(n *simNode, shard int, node string) (seq int64, now time.Duration) {
	t := v.time()
	v.takes(func(c *capacity) int64 { return c.call })
	if m := v.side(n); m != v.model {
		return m.ledger[ledgerKey{shard, node}].seq, time.Duration(t)
	}
	seq = v.model.ledger[ledgerKey{shard, node}].seq
	if v.lua != nil {
		v.lua.compareSeq(t, shard, node, seq)
	}
	return seq, time.Duration(t)
}
