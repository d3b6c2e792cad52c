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
	poison  map[string]bool
}

type ledgerKey struct {
	shard int
	node  string
}

type ledgerEntry struct {
	seq, total int64
	failed     []int
}

type modelFunnel struct {
	gen int64
	tat limit.Span
}

type modelWindow struct {
	gen     int64
	buckets map[int64]int64
}

func newModelRedis() *modelRedis {
	m := &modelRedis{applied: map[string]int64{}, poison: map[string]bool{}}
	m.wipe()
	return m
}

// wipe is FLUSHALL, or a restart without data.
func (m *modelRedis) wipe() {
	m.funnels, m.windows = map[string]*modelFunnel{}, map[string]*modelWindow{}
	m.ledger, m.alive = map[ledgerKey]ledgerEntry{}, map[string]int64{}
}

// snapshot copies the data, to roll back to later.
func (m *modelRedis) snapshot() *modelRedis {
	s := newModelRedis()
	for k, f := range m.funnels {
		c := *f
		s.funnels[k] = &c
	}
	for k, w := range m.windows {
		s.windows[k] = &modelWindow{w.gen, maps.Clone(w.buckets)}
	}
	s.ledger, s.alive = maps.Clone(m.ledger), maps.Clone(m.alive)
	return s
}

func (m *modelRedis) rollback(s *modelRedis) {
	m.funnels, m.windows, m.ledger, m.alive = s.funnels, s.windows, s.ledger, s.alive
}

func (m *modelRedis) beat(now int64, node string, ttl int64, shards []int) remote.Beat {
	m.alive[node] = now + ttl
	maps.DeleteFunc(m.alive, func(_ string, gone int64) bool { return gone <= now })
	b := remote.Beat{Nodes: len(m.alive), Now: time.Duration(now)}
	for _, s := range shards {
		b.Seqs = append(b.Seqs, m.ledger[ledgerKey{s, node}].seq)
	}
	return b
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

func (m *modelRedis) funnel(now int64, op *remote.Op, apply bool) remote.State {
	f, at := m.funnels[op.Key], limit.Span{NS: now}
	if f == nil {
		f = &modelFunnel{}
		m.funnels[op.Key] = f
	}
	if apply && op.Raise && f.gen <= op.Known.Gen {
		known := op.Rule.Add(at, op.Known.Level)
		if f.gen < op.Known.Gen {
			f.tat = limit.Span{}
		}
		if f.gen = op.Known.Gen; op.Known.Level != (limit.Span{}) {
			f.tat = f.tat.Max(known)
		}
	}
	if apply && op.Units > 0 {
		f.tat = op.Rule.Add(f.tat, op.Rule.Cost(op.Units)).Max(op.Rule.Add(at, op.Ahead))
	}
	return remote.State{Gen: f.gen, Level: op.Rule.Sub(f.tat, at)}
}

func (m *modelRedis) window(now int64, op *remote.Op, apply bool) remote.State {
	w := m.windows[op.Key]
	if w == nil {
		w = &modelWindow{buckets: map[int64]int64{}}
		m.windows[op.Key] = w
	}
	cur, kept := now/int64(op.Rule.Width()), int64(op.Rule.Kept())
	maps.DeleteFunc(w.buckets, func(id, _ int64) bool { return id < cur-kept })
	if apply && op.Raise && w.gen <= op.Known.Gen {
		if w.gen < op.Known.Gen {
			clear(w.buckets)
		}
		w.gen = op.Known.Gen
		for _, b := range op.Known.Buckets {
			if id := min(b.ID, cur); id >= cur-kept {
				w.buckets[id] = max(w.buckets[id], b.Units)
			}
		}
	}
	if apply {
		for _, b := range op.Buckets {
			if id := min(b.ID, cur); id >= cur-kept {
				w.buckets[id] += b.Units
			}
		}
	}
	st := remote.State{Gen: w.gen}
	for _, id := range slices.Sorted(maps.Keys(w.buckets)) {
		st.Buckets = append(st.Buckets, remote.Bucket{ID: id, Units: w.buckets[id]})
	}
	return st
}
