package sim

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// modelRedis executes batches as the Lua scripts do, in plain Go. It also
// keeps books that Redis does not have: what was ever applied, by node.
type modelRedis struct {
	leaky   map[string]*modelLeakyBucket
	windows map[string]*modelWindow
	ledger  map[ledgerKey]ledgerEntry
	sets    map[string]*modelSet // by Redis' key: of nodes, of layouts
	applied map[string]int64     // process → units applied, ever
	back    map[string]int64     // process → operations that handed something back
	refused map[refusedBack]bool // of these operations the process knows that they failed
	credit  map[creditKey]int64
	poison  map[string]bool
	channel string // id of the channel of notices; empty: it has none
	slack   int64  // for how many ms a counter outlives its meaning, by the latest batch
}

// keptFor is for how many ms a counter outlives its meaning, if not for longer.
const keptFor = 1000

// creditKey: how many units of a process the data of a key has in it.
type creditKey struct{ process, key string }

// refusedBack is an operation that was to hand something back. After a rollback, a stray copy of its
// batch may do so.
type refusedBack struct {
	process string
	nonce   uint64 // of its batch
	op      int
}

type ledgerKey struct {
	shard int
	node  string
}

type ledgerEntry struct {
	seq      int64
	nonce    uint64
	failed   []int
	forgiven map[int]int64
}

// modelSet is a set of what is alive: by when each member counts as gone.
type modelSet struct {
	members map[string]int64
	gone    int64 // when the key expires
}

type modelLeakyBucket struct {
	modelBirth
	tat     arith.Span
	waiting int64 // until when callers wait who have booked ahead, µs
	full    int64 // by this capacity or a larger one, µs
	gone    int64 // when the key expires
}

type modelWindow struct {
	modelBirth
	buckets map[int64]int64
	last    map[int64]int64 // when the last unit of each came, ns after it began
	gone    int64
}

// modelBirth says of which time a state is.
type modelBirth struct {
	gen   int64
	reset int64 // the generation that the latest reset has begun
	born  int64 // when the newest unit was booked, µs
}

// renew begins a generation that is later than all that was booked before.
func (b *modelBirth) renew(now int64) { b.gen = max(now/1000, b.gen+1, b.born+1) }

// merge puts another state into this one, and reports which content counts.
func (b *modelBirth) merge(o report.State, now int64) (mine, theirs bool) {
	top := max(b.gen, o.Gen)
	mine, theirs = b.gen == top || b.born >= top || max(top, o.Born) > now/1000, o.Gen == top || o.Born >= top
	if b.gen < top {
		b.gen, b.reset = top, top
	}
	if !mine {
		b.born = 0
	}
	if theirs {
		b.born = max(b.born, o.Born)
	}
	return mine, theirs
}

func newModelRedis() *modelRedis {
	m := &modelRedis{applied: map[string]int64{}, back: map[string]int64{}, poison: map[string]bool{}, refused: map[refusedBack]bool{}}
	m.wipe()
	return m
}

// takesOff reports whether an operation hands something back.
func takesOff(op *report.Report) bool { return op.Back != arith.Span{} || len(op.BackBuckets) > 0 }

// wipe is FLUSHALL, or a restart without data.
func (m *modelRedis) wipe() {
	m.leaky, m.windows = map[string]*modelLeakyBucket{}, map[string]*modelWindow{}
	m.ledger, m.sets, m.credit = map[ledgerKey]ledgerEntry{}, map[string]*modelSet{}, map[creditKey]int64{}
	m.back = map[string]int64{} // a stray copy may take the same off again, of new data
	m.channel = ""
}

// forget is a key that Redis has evicted, or somebody deleted.
func (m *modelRedis) forget(key string) {
	delete(m.leaky, key)
	delete(m.windows, key)
	maps.DeleteFunc(m.credit, func(k creditKey, _ int64) bool { return k.key == key })
}

// expire drops the keys that have expired.
func (m *modelRedis) expire(now int64) {
	maps.DeleteFunc(m.leaky, func(_ string, f *modelLeakyBucket) bool { return f.gone <= now })
	maps.DeleteFunc(m.windows, func(_ string, w *modelWindow) bool { return w.gone <= now })
	maps.DeleteFunc(m.sets, func(_ string, set *modelSet) bool { return set.gone <= now })
}

// renew makes used units of a key count, in a generation that no view has yet.
func (m *modelRedis) renew(now int64, key string, r *limit.Rule, used int64) (st report.State) {
	if arith.Of(r).Algorithm == arith.TokenBucket {
		was := m.leakyAt(now, key)
		f := &modelLeakyBucket{modelBirth: was.modelBirth, gone: was.gone}
		f.renew(now)
		if f.reset, f.born = f.gen, now/1000; used > 0 {
			f.tat = arith.Of(r).Add(arith.Span{NS: now}, arith.Of(r).Cost(used))
		}
		f.expire(now, keptFor, r)
		m.leaky[key] = f
		return report.State{Gen: f.gen, Born: f.born, Level: arith.Of(r).Sub(f.tat, arith.Span{NS: now})}
	}
	was := m.windowAt(now, key)
	w := &modelWindow{modelBirth: was.modelBirth, buckets: map[int64]int64{}, last: map[int64]int64{}, gone: was.gone}
	w.renew(now)
	w.reset, w.born = w.gen, now/1000
	st.Gen, st.Born = w.gen, w.born
	if used > 0 {
		id, last := arith.Of(r).Index(now), inBucket(now, r)
		w.buckets[id], w.last[id] = used, last
		st.Buckets = []report.Bucket{{ID: id, Units: used, Last: time.Duration(last)}}
	}
	w.expire(now, keptFor, r)
	m.windows[key] = w
	return st
}

// snapshot copies the data, to roll back to later.
func (m *modelRedis) snapshot() *modelRedis {
	s := newModelRedis()
	for k, f := range m.leaky {
		c := *f
		s.leaky[k] = &c
	}
	for k, w := range m.windows {
		s.windows[k] = &modelWindow{w.modelBirth, maps.Clone(w.buckets), maps.Clone(w.last), w.gone}
	}
	for k, set := range m.sets {
		s.sets[k] = &modelSet{maps.Clone(set.members), set.gone}
	}
	s.ledger, s.credit, s.back = maps.Clone(m.ledger), maps.Clone(m.credit), maps.Clone(m.back)
	s.channel = m.channel
	return s
}

func (m *modelRedis) rollback(s *modelRedis) {
	m.leaky, m.windows, m.ledger, m.sets, m.credit = s.leaky, s.windows, s.ledger, s.sets, s.credit
	m.channel = s.channel
	m.back = s.back // what was handed back since then has not been, in this data
}

// beat enters a node of a layout and returns how many of it are alive, and the layouts
// that are in use.
func (m *modelRedis) beat(now int64, ks redisstore.Keyspace, layout, node string, ttl int64) (nodes int, layouts []string) {
	in := m.enter(now, layoutsKey, layout, ttl)
	layouts = slices.SortedFunc(maps.Keys(in), func(a, b string) int {
		return cmp.Or(cmp.Compare(in[a], in[b]), cmp.Compare(a, b)) // the first to go first
	})
	return len(m.enter(now, ks.NodesKey(), node, ttl)), layouts[:min(len(layouts), 10)]
}

// layoutsKey is the key of the layouts in use, whatever the layout is.
const layoutsKey = "hl:{0}:layouts"

// enter adds a member to a set and returns those that have not gone.
func (m *modelRedis) enter(now int64, key, member string, ttl int64) map[string]int64 {
	set := m.sets[key]
	if set == nil || set.gone <= now {
		set = &modelSet{members: map[string]int64{}}
		m.sets[key] = set
	}
	set.members[member], set.gone = now+ttl, now+int64(24*time.Hour)
	maps.DeleteFunc(set.members, func(_ string, gone int64) bool { return gone <= now })
	return set.members
}

// exec executes a batch that a process has sent. Which one that is Redis does not
// know: it goes by the name in the batch.
func (m *modelRedis) exec(now int64, process string, b *redisstore.Batch) redisstore.Reply {
	m.slack = keptFor + (int64(b.MaxLag)+ms-1)/ms
	k := ledgerKey{b.Shard, b.Node}
	e := m.ledger[k]
	rep := redisstore.Reply{Now: time.Duration(now)}
	switch {
	case e.seq == b.Seq && e.nonce == b.Nonce:
		rep.Verdict = redisstore.VerdictDuplicate
	case e.seq == b.Seq:
		rep.Verdict = redisstore.VerdictOther
		return rep
	case e.seq > b.Seq:
		rep.Verdict = redisstore.VerdictStale
		return rep
	case e.seq == b.Prev || b.Accept:
		rep.Verdict = redisstore.VerdictApplied
		e.seq, e.nonce, e.failed, e.forgiven = b.Seq, b.Nonce, nil, map[int]int64{}
	default:
		rep.Verdict = redisstore.VerdictLost
		return rep
	}
	for i := range b.Ops {
		op := &b.Ops[i]
		failed := rep.Verdict == redisstore.VerdictDuplicate && slices.Contains(e.failed, i)
		if m.poison[op.Key] || failed {
			booked := rep.Verdict == redisstore.VerdictDuplicate && !failed
			rep.States = append(rep.States, report.State{Err: &limit.KeyError{Key: op.Key, Reason: "garbage"}, Booked: booked})
			if rep.Verdict == redisstore.VerdictApplied {
				e.failed = append(e.failed, i)
				m.refused[refusedBack{process, b.Nonce, i}] = takesOff(op)
			}
			continue
		}
		if rep.Verdict == redisstore.VerdictApplied {
			m.applied[process] += op.Units
			if takesOff(op) && !m.refused[refusedBack{process, b.Nonce, i}] {
				m.back[process]++
			}
			m.credit[creditKey{process, op.Key}] += op.Units
		}
		st := m.op(now, op, rep.Verdict == redisstore.VerdictApplied)
		if rep.Verdict == redisstore.VerdictApplied {
			e.forgiven[i] = st.Forgiven
		}
		st.Forgiven = e.forgiven[i]
		rep.States = append(rep.States, st)
	}
	m.ledger[k] = e
	return rep
}

func (m *modelRedis) op(now int64, op *report.Report, apply bool) report.State {
	if arith.Of(op.Rule).Algorithm == arith.TokenBucket {
		return m.leakyBucket(now, op, apply)
	}
	return m.window(now, op, apply)
}

// expiry returns when a key goes that matters until the given time, and
// would have gone at another. slack is for how many ms it outlives that.
func expiry(now, until, gone, gen, slack int64, r *limit.Rule) int64 {
	up := func(d int64) int64 { return (max(d, 0) + ms - 1) / ms }
	ttl := up(until - now)
	if gen > 0 {
		ttl = max(ttl, up(int64(arith.Of(r).Horizon())), (gone-now)/ms-slack)
	}
	return now + (ttl+slack)*ms
}

func (f *modelLeakyBucket) expire(now, slack int64, r *limit.Rule) {
	us := f.tat.NS / 1000 * 1000
	if f.tat.NS > us || f.tat.Rem > 0 {
		us += 1000
	}
	f.gone = expiry(now, us, f.gone, f.gen, slack, r)
}

func (w *modelWindow) expire(now, slack int64, r *limit.Rule) {
	until := now
	for id, u := range w.buckets {
		if u > 0 {
			until = max(until, arith.Of(r).Ends(id+int64(arith.Of(r).Kept)))
		}
	}
	w.gone = expiry(now, until, w.gone, w.gen, slack, r)
}

// leakyAt returns a key's leaky bucket, an empty one if there is none any more.
func (m *modelRedis) leakyAt(now int64, key string) *modelLeakyBucket {
	f := m.leaky[key]
	if f == nil || f.gone <= now {
		return &modelLeakyBucket{}
	}
	return f
}

func (m *modelRedis) windowAt(now int64, key string) *modelWindow {
	w := m.windows[key]
	if w == nil || w.gone <= now {
		return &modelWindow{buckets: map[int64]int64{}, last: map[int64]int64{}}
	}
	return w
}

// bucketAt returns the ID of the bucket of a time, and for how long it has gone on.
func bucketAt(r *limit.Rule, at int64) (id, passed int64) {
	is := arith.Of(r)
	if is.Width == 0 {
		return 0, 0 // a leaky bucket
	}
	id = is.Index(at)
	return id, at - is.Begins(id)
}

// inBucket returns for how long, in whole µs, the bucket of now has gone on.
func inBucket(now int64, r *limit.Rule) int64 {
	_, passed := bucketAt(r, now)
	return passed / 1000 * 1000
}

func (m *modelRedis) leakyBucket(now int64, op *report.Report, apply bool) report.State {
	f, at := m.leakyAt(now, op.Key), arith.Span{NS: now}
	if apply && op.Restore {
		mine, theirs := f.merge(op.Known, now)
		if !mine {
			f.tat = arith.Span{}
		}
		if theirs {
			f.tat = f.tat.Max(arith.Of(op.Rule).Add(op.Known.Level, at))
		}
	}
	back := op.Back != arith.Span{} && op.BackGen >= f.reset && at.Less(f.tat) && (f.waiting <= now/1000 || !op.BackTop.Less(arith.Of(op.Rule).Sub(f.tat, at)))
	if apply && back {
		f.tat = arith.Of(op.Rule).Sub(f.tat, op.Back)
		left := arith.Of(op.Rule).Sub(f.tat, at)
		above := max(left.NS/1000-f.full, 0)
		if left.NS%1000 > 0 || left.Rem > 0 {
			above++
		}
		f.waiting = min(f.waiting, now/1000+above)
		f.renew(now)
	}
	forgiven := int64(0)
	if apply && op.Units > 0 {
		had := f.tat
		f.tat = arith.Of(op.Rule).Add(f.tat, arith.Of(op.Rule).Cost(op.Units)).Max(arith.Of(op.Rule).Add(op.Ahead, at))
		f.born = now / 1000
		if op.Debt > 0 {
			top := had.Max(arith.Of(op.Rule).Add(at, op.Ceiling))
			forgiven = min(arith.Of(op.Rule).Whole(arith.Of(op.Rule).Sub(f.tat, top)), op.Debt)
			f.tat = arith.Of(op.Rule).Sub(f.tat, arith.Of(op.Rule).Cost(forgiven))
		}
	}
	waiting, full := f.waiting, f.full
	if apply && op.Waits > 0 {
		if own := arith.Of(op.Rule).Full.NS / 1000; waiting <= now/1000 || own < full {
			full = own
		}
		waiting = max(waiting, now/1000+(int64(op.Waits)+999)/1000)
	}
	st := report.State{Gen: f.gen, Born: f.born, Level: arith.Of(op.Rule).Diff(f.tat, at), Forgiven: forgiven}
	if waiting > now/1000 {
		st.Waiting = waiting
	}
	// A key is not made for a leaky bucket that is empty already, for a while if units came.
	if op.Units > 0 {
		at.NS -= m.slack * ms
	}
	empty := st.Gen == 0 && !at.Less(f.tat) && m.leakyAt(now, op.Key) != f
	if apply && (op.Units > 0 || op.Restore || back) && !empty {
		f.waiting, f.full = waiting, full
		f.expire(now, m.slack, op.Rule)
		m.leaky[op.Key] = f
	} else if f.gen > 0 {
		f.expire(now, m.slack, op.Rule) // a node that learns the generation now may go on knowing it
	}
	return st
}

func (m *modelRedis) window(now int64, op *report.Report, apply bool) report.State {
	w := m.windowAt(now, op.Key)
	cur, kept := arith.Of(op.Rule).Index(now), int64(arith.Of(op.Rule).Kept)
	early := arith.Of(op.Rule).Calendar != nil && w.buckets[cur+1] > 0
	if early {
		cur++ // a period that has begun does not end when the clock is set back
	}
	// Buckets ahead of the clock count as the current one.
	n, last, moved := map[int64]int64{}, map[int64]int64{}, false
	place := func(to map[int64]int64, b report.Bucket) {
		came := int64(b.Last+time.Microsecond-1) / 1000 * 1000
		if b.ID > cur {
			moved = true
			b.ID, came = cur, (now-arith.Of(op.Rule).Begins(cur))/1000*1000
		}
		if b.ID >= cur-kept && b.Units > 0 {
			to[b.ID] += b.Units
			last[b.ID] = max(last[b.ID], came)
		}
	}
	for id, u := range w.buckets {
		place(n, report.Bucket{ID: id, Units: u, Last: time.Duration(w.last[id])})
	}
	is := w.modelBirth
	if apply && op.Restore {
		mine, theirs := is.merge(op.Known, now)
		if !mine {
			clear(n)
			clear(last)
		}
		known := map[int64]int64{}
		for _, b := range op.Known.Buckets {
			if theirs {
				place(known, b)
			}
		}
		for id, u := range known {
			n[id] = max(n[id], u)
		}
	}
	back := len(op.BackBuckets) > 0 && op.BackGen >= is.reset
	if apply && back {
		back = false
		for _, b := range op.BackBuckets {
			if id := min(b.ID, cur); id >= cur-kept && n[id] > 0 {
				if n[id] -= b.Units; n[id] <= 0 {
					delete(n, id)
				}
				back = true
			}
		}
		if back {
			is.renew(now)
		}
	}
	if apply && op.Units > 0 {
		is.born = now / 1000
		for _, b := range op.Buckets {
			if early && b.ID == cur-1 {
				b.ID = cur + 1 // it counts as the current one
			}
			place(n, b)
		}
	}
	empty := len(n) == 0 && is.gen == 0 && m.windows[op.Key] != w
	if apply && (op.Units > 0 || op.Restore || back || moved) && !empty {
		m.windows[op.Key] = &modelWindow{modelBirth: is, buckets: n, last: last, gone: w.gone}
		m.windows[op.Key].expire(now, m.slack, op.Rule)
	} else if w.gen > 0 {
		w.gone = expiry(now, now, w.gone, w.gen, m.slack, op.Rule)
	}
	st := report.State{Gen: is.gen, Born: is.born}
	for _, id := range slices.Sorted(maps.Keys(n)) {
		st.Buckets = append(st.Buckets, report.Bucket{ID: id, Units: n[id], Last: time.Duration(last[id])})
	}
	return st
}
