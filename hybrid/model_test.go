package hybrid

import (
	"maps"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// modelRedis executes batches as the Lua scripts do, in plain Go. It also
// keeps books that Redis does not have: what was ever applied, by node.
type modelRedis struct {
	funnels map[string]*modelFunnel
	windows map[string]*modelWindow
	ledger  map[ledgerKey]ledgerEntry
	alive   map[string]int64 // node → when it counts as gone
	applied map[string]int64 // node → units applied, ever
	back    map[string]int64 // node → operations that handed something back, ever
	credit  map[creditKey]int64
	poison  map[string]bool
}

// creditKey: how many units of a node the data of a key has in it.
type creditKey struct{ node, key string }

type ledgerKey struct {
	shard int
	node  string
}

type ledgerEntry struct {
	seq, total int64
	failed     []int
}

type modelFunnel struct {
	gen   int64
	reset int64 // the generation that the latest reset has begun
	tat   limit.Span
	gone  int64 // when the key expires
}

type modelWindow struct {
	gen     int64
	reset   int64
	buckets map[int64]int64
	gone    int64
}

func newModelRedis() *modelRedis {
	m := &modelRedis{applied: map[string]int64{}, back: map[string]int64{}, poison: map[string]bool{}}
	m.wipe()
	return m
}

// takesOff reports whether an operation hands something back.
func takesOff(op *remote.Op) bool { return op.Back != limit.Span{} || len(op.BackBuckets) > 0 }

// wipe is FLUSHALL, or a restart without data.
func (m *modelRedis) wipe() {
	m.funnels, m.windows = map[string]*modelFunnel{}, map[string]*modelWindow{}
	m.ledger, m.alive, m.credit = map[ledgerKey]ledgerEntry{}, map[string]int64{}, map[creditKey]int64{}
}

// forget is a key that Redis has evicted, or somebody deleted.
func (m *modelRedis) forget(key string) {
	delete(m.funnels, key)
	delete(m.windows, key)
	maps.DeleteFunc(m.credit, func(k creditKey, _ int64) bool { return k.key == key })
}

// expire drops the keys that have expired.
func (m *modelRedis) expire(now int64) {
	maps.DeleteFunc(m.funnels, func(_ string, f *modelFunnel) bool { return f.gone <= now })
	maps.DeleteFunc(m.windows, func(_ string, w *modelWindow) bool { return w.gone <= now })
}

// renew makes used units of a key count, in a generation that no view has yet.
func (m *modelRedis) renew(now int64, key string, r *limit.Rule, used int64) (st remote.State) {
	if r.Algorithm() == limit.AlgorithmFunnel {
		was := m.funnelAt(now, key)
		f := &modelFunnel{gen: max(now/1000, was.gen+1), gone: was.gone}
		if f.reset = f.gen; used > 0 {
			f.tat = r.Add(limit.Span{NS: now}, r.Cost(used))
		}
		f.expire(now, r)
		m.funnels[key] = f
		return remote.State{Gen: f.gen, Level: r.Sub(f.tat, limit.Span{NS: now})}
	}
	was := m.windowAt(now, key)
	w := &modelWindow{gen: max(now/1000, was.gen+1), buckets: map[int64]int64{}, gone: was.gone}
	st.Gen, w.reset = w.gen, w.gen
	if used > 0 {
		w.buckets[now/int64(r.Width())] = used
		st.Buckets = []remote.Bucket{{ID: now / int64(r.Width()), Units: used}}
	}
	w.expire(now, r)
	m.windows[key] = w
	return st
}

// snapshot copies the data, to roll back to later.
func (m *modelRedis) snapshot() *modelRedis {
	s := newModelRedis()
	for k, f := range m.funnels {
		c := *f
		s.funnels[k] = &c
	}
	for k, w := range m.windows {
		s.windows[k] = &modelWindow{w.gen, w.reset, maps.Clone(w.buckets), w.gone}
	}
	s.ledger, s.alive, s.credit = maps.Clone(m.ledger), maps.Clone(m.alive), maps.Clone(m.credit)
	return s
}

func (m *modelRedis) rollback(s *modelRedis) {
	m.funnels, m.windows, m.ledger, m.alive, m.credit = s.funnels, s.windows, s.ledger, s.alive, s.credit
}

// beat enters a node and returns how many are alive.
func (m *modelRedis) beat(now int64, node string, ttl int64) int {
	m.alive[node] = now + ttl
	maps.DeleteFunc(m.alive, func(_ string, gone int64) bool { return gone <= now })
	return len(m.alive)
}

func (m *modelRedis) exec(now int64, b *remote.Batch) remote.Reply {
	k := ledgerKey{b.Shard, b.Node}
	e := m.ledger[k]
	rep := remote.Reply{Now: time.Duration(now), Total: e.total}
	switch {
	case e.seq == b.Seq:
		rep.Verdict = remote.VerdictDuplicate
	case e.seq > b.Seq:
		rep.Verdict = remote.VerdictStale
		return rep
	case e.seq == b.Prev || b.Accept:
		rep.Verdict = remote.VerdictApplied
		e.seq, e.failed = b.Seq, nil
	default:
		rep.Verdict = remote.VerdictLost
		return rep
	}
	for i := range b.Ops {
		op := &b.Ops[i]
		failed := rep.Verdict == remote.VerdictDuplicate && slices.Contains(e.failed, i)
		if m.poison[op.Key] || failed {
			booked := rep.Verdict == remote.VerdictDuplicate && !failed
			rep.States = append(rep.States, remote.State{Err: &remote.KeyError{Key: op.Key, Reason: "garbage", Booked: booked}})
			if rep.Verdict == remote.VerdictApplied {
				e.failed = append(e.failed, i)
			}
			continue
		}
		if rep.Verdict == remote.VerdictApplied {
			m.applied[b.Node] += op.Units
			if takesOff(op) {
				m.back[b.Node]++
			}
			m.credit[creditKey{b.Node, op.Key}] += op.Units
			e.total += op.Units
		}
		rep.States = append(rep.States, m.op(now, op, rep.Verdict == remote.VerdictApplied))
	}
	rep.Total = e.total
	m.ledger[k] = e
	return rep
}

func (m *modelRedis) op(now int64, op *remote.Op, apply bool) remote.State {
	if op.Rule.Algorithm() == limit.AlgorithmFunnel {
		return m.funnel(now, op, apply)
	}
	return m.window(now, op, apply)
}

// expiry returns when a key goes that matters until the given time, and
// would have gone at another.
func expiry(now, until, gone, gen int64, r *limit.Rule) int64 {
	up := func(d int64) int64 { return (max(d, 0) + ms - 1) / ms }
	ttl := up(until - now)
	if gen > 0 {
		ttl = max(ttl, up(int64(r.Horizon())), (gone-now)/ms-1000)
	}
	return now + (ttl+1000)*ms
}

func (f *modelFunnel) expire(now int64, r *limit.Rule) {
	us := f.tat.NS / 1000 * 1000
	if f.tat.NS > us || f.tat.Rem > 0 {
		us += 1000
	}
	f.gone = expiry(now, us, f.gone, f.gen, r)
}

func (w *modelWindow) expire(now int64, r *limit.Rule) {
	until, width := now, int64(r.Width())
	for id, u := range w.buckets {
		if u > 0 {
			until = max(until, (id+int64(r.Kept())+1)*width)
		}
	}
	w.gone = expiry(now, until, w.gone, w.gen, r)
}

// funnelAt returns a key's funnel, an empty one if there is none any more.
func (m *modelRedis) funnelAt(now int64, key string) *modelFunnel {
	f := m.funnels[key]
	if f == nil || f.gone <= now {
		return &modelFunnel{}
	}
	return f
}

func (m *modelRedis) windowAt(now int64, key string) *modelWindow {
	w := m.windows[key]
	if w == nil || w.gone <= now {
		return &modelWindow{buckets: map[int64]int64{}}
	}
	return w
}

func (m *modelRedis) funnel(now int64, op *remote.Op, apply bool) remote.State {
	f, at := m.funnelAt(now, op.Key), limit.Span{NS: now}
	if apply && op.Raise && f.gen <= op.Known.Gen {
		known := op.Rule.Add(at, op.Known.Level)
		if f.gen < op.Known.Gen {
			f.tat = limit.Span{}
		}
		if f.gen = op.Known.Gen; op.Known.Level != (limit.Span{}) {
			f.tat = f.tat.Max(known)
		}
	}
	back := op.Back != limit.Span{} && op.BackGen >= f.reset
	if apply && back {
		f.tat = op.Rule.Sub(f.tat, op.Back)
		f.gen = max(now/1000, f.gen+1)
	}
	if apply && op.Units > 0 {
		f.tat = op.Rule.Add(f.tat, op.Rule.Cost(op.Units)).Max(op.Rule.Add(at, op.Ahead))
	}
	st := remote.State{Gen: f.gen, Level: op.Rule.Sub(f.tat, at)}
	// A key is not made for a funnel that is empty already.
	empty := st.Gen == 0 && st.Level == (limit.Span{}) && m.funnelAt(now, op.Key) != f
	if apply && (op.Units > 0 || op.Raise || back) && !empty {
		f.expire(now, op.Rule)
		m.funnels[op.Key] = f
	} else if f.gen > 0 {
		f.expire(now, op.Rule) // whoever is told of the generation now may go on knowing it
	}
	return st
}

func (m *modelRedis) window(now int64, op *remote.Op, apply bool) remote.State {
	w := m.windowAt(now, op.Key)
	cur, kept := now/int64(op.Rule.Width()), int64(op.Rule.Kept())
	// Buckets ahead of the clock count as the current one.
	n := map[int64]int64{}
	place := func(to map[int64]int64, id, units int64) {
		if id = min(id, cur); id >= cur-kept && units > 0 {
			to[id] += units
		}
	}
	for id, u := range w.buckets {
		place(n, id, u)
	}
	gen := w.gen
	if apply && op.Raise && gen <= op.Known.Gen {
		if gen < op.Known.Gen {
			clear(n)
		}
		gen = op.Known.Gen
		known := map[int64]int64{}
		for _, b := range op.Known.Buckets {
			place(known, b.ID, b.Units)
		}
		for id, u := range known {
			n[id] = max(n[id], u)
		}
	}
	back := len(op.BackBuckets) > 0 && op.BackGen >= w.reset
	if apply && back {
		for _, b := range op.BackBuckets {
			if id := min(b.ID, cur); id >= cur-kept {
				if n[id] -= b.Units; n[id] <= 0 {
					delete(n, id)
				}
			}
		}
		gen = max(now/1000, gen+1)
	}
	if apply && op.Units > 0 {
		for _, b := range op.Buckets {
			place(n, b.ID, b.Units)
		}
	}
	empty := len(n) == 0 && gen == 0 && m.windows[op.Key] != w
	if apply && (op.Units > 0 || op.Raise || back) && !empty {
		m.windows[op.Key] = &modelWindow{gen: gen, reset: w.reset, buckets: n, gone: w.gone}
		m.windows[op.Key].expire(now, op.Rule)
	} else if gen > 0 {
		w.gone = expiry(now, now, w.gone, gen, op.Rule)
	}
	st := remote.State{Gen: gen}
	for _, id := range slices.Sorted(maps.Keys(n)) {
		st.Buckets = append(st.Buckets, remote.Bucket{ID: id, Units: n[id]})
	}
	return st
}
