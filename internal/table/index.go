package table

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/limit"
)

// index finds the counter of a key. It has all counters of a table. They are created and removed
// under the lock of their shard, so a key has only one counter. A look-up takes no lock.
type index struct {
	rows   [shardsMost]atomic.Pointer[rows] // by shard; in one array, because each check reads one
	shift  int                              // hash >> shift is the number of the shard
	shards []shard
}

const (
	// rowSize is the number of entries in a row: one for each byte of a word of tags.
	rowSize = 8
	// shardsMost is the largest number of shards, each with its own lock. shardKeys is for how many
	// keys there is one more shard. A shard grows as a whole: a call that makes it grow waits until
	// all its counters have moved.
	shardsMost, shardKeys = 1024, 1024
	// A shard grows when more than loadMost of loadOf entries are taken, so that 2 % of the keys
	// find no entry. It then gets twice as many entries, so that a new key moves one or two others
	// on average.
	loadMost, loadOf = 3, 4
)

// shard is a part of the index with its own lock.
type shard struct {
	rows *atomic.Pointer[rows] // in the index

	mu     sync.Mutex         // protects all below and writes to tags; its counters are dropped only under it
	live   int                // number of counters
	most   int                // largest number of rows
	extra  []extra            // counters whose rows are full
	gone   []*counter.Counter // dropped, but still in the policy
	hand   int                // where eviction continues, see nextLocked
	swept  int                // where the sweep continues
	stuck  int                // counters looked at in vain since eviction last dropped one with nothing to report
	traces *traces            // of keys that have no counter
	_      [16]byte           // fills a cache line
}

// rows are the entries of a shard and, in a separate array, their tags. All tags are small enough
// to stay in the CPU cache, so a look-up waits for only one line of memory. A key whose row is full
// has an entry in the other row of a pair. The tags of the two rows are adjacent.
type rows struct {
	tags    []atomic.Uint64 // one word per row, one byte per entry; 0: free
	entries []counter.Entry
	mask    uint64
}

func newRows(n int) *rows {
	return &rows{tags: make([]atomic.Uint64, n), entries: make([]counter.Entry, n*rowSize), mask: uint64(n - 1)}
}

const (
	everyByte = 0x01_01_01_01_01_01_01_01
	topBits   = 0x80_80_80_80_80_80_80_80
)

// tagOf returns the tag of a hash. Row, tag and shard use different bits of the hash.
func tagOf(h uint64) uint64 { return max(h&0xff, 1) }

func (r *rows) row(h uint64) uint64 { return h >> 8 & r.mask }

// other returns the other row of a pair.
func (r *rows) other(row uint64) uint64 { return (row ^ 1) & r.mask }

// matching returns a word with the top bit set in each byte of the tags of a row that equals a tag;
// tag 0: of free entries. Bytes above the lowest match may match in error.
func (r *rows) matching(row, tag uint64) uint64 {
	differ := r.tags[row].Load() ^ tag*everyByte
	return (differ - everyByte) &^ differ & topBits
}

// at returns the entry of the lowest match.
func (r *rows) at(row, same uint64) *counter.Entry {
	return &r.entries[row*rowSize+uint64(bits.TrailingZeros64(same))/8]
}

// locate returns the entry that most likely belongs to a hash, or nil. It does not read the entry,
// but prefetches it.
func (x *index) locate(h uint64) *counter.Entry {
	r := x.rows[h>>x.shift%shardsMost].Load()
	row := r.row(h)
	same := r.matching(row, tagOf(h))
	if same == 0 {
		row = r.other(row)
		if same = r.matching(row, tagOf(h)); same == 0 {
			return nil
		}
	}
	e := r.at(row, same)
	fetchToWrite(unsafe.Pointer(e))
	return e
}

// search returns the entry with this hash and fingerprint, or nil.
func (x *index) search(h, print uint64) *counter.Entry {
	r := x.rows[h>>x.shift%shardsMost].Load()
	return r.search(h, func(e *counter.Entry) bool { return e.Print() == print })
}

// search returns the first entry with this hash for which right returns true, or nil.
func (r *rows) search(h uint64, right func(*counter.Entry) bool) *counter.Entry {
	row := r.row(h)
	for range 2 {
		for same := r.matching(row, tagOf(h)); same != 0; same &= same - 1 {
			if e := r.at(row, same); right(e) {
				return e
			}
		}
		row = r.other(row)
	}
	return nil
}

func (x *index) shard(h uint64) *shard { return &x.shards[h>>x.shift] }

// init makes an index with room for this many counters.
func (x *index) init(keys int) {
	n := 1
	for n < shardsMost && n*shardKeys < keys {
		n *= 2
	}
	x.shift, x.shards = 65-bits.Len(uint(n)), make([]shard, n)
	most := 1
	for most*rowSize*n*loadMost < keys*loadOf {
		most *= 2
	}
	for i := range x.shards {
		sh := &x.shards[i]
		sh.rows, sh.most = &x.rows[i], most
		sh.rows.Store(newRows(1))
	}
}

// initTraces makes room for at least this many remembered keys, and returns for how many.
func (x *index) initTraces(keys int) (room int) {
	most := 1
	for most*setSize*len(x.shards) < keys {
		most *= 2
	}
	all := make([]traces, len(x.shards))
	for i := range x.shards {
		all[i].most = most
		x.shards[i].traces = &all[i]
	}
	return most * setSize * len(x.shards)
}

// extra is a counter that has no entry, and the fingerprint of its key.
type extra struct {
	print uint64
	c     *counter.Counter
}

// findLocked returns the counter of a key, or nil.
func (sh *shard) findLocked(h, print uint64, key string, rule *limit.Rule) *counter.Counter {
	e := sh.rows.Load().search(h, func(e *counter.Entry) bool {
		c := e.Counter()
		return c != nil && e.Print() == print && c.Matches(key, rule)
	})
	if e != nil {
		return e.Counter()
	}
	for _, x := range sh.extra {
		if x.print == print && x.c.Matches(key, rule) {
			return x.c
		}
	}
	return nil
}

// free returns the row of a pair that has free entries, and these as matching does; 0: none has.
func (r *rows) free(h uint64) (row, free uint64) {
	row = r.row(h)
	if free = r.matching(row, 0); free == 0 {
		row = r.other(row)
		free = r.matching(row, 0)
	}
	return row, free
}

// put calls enter with a free entry for h, and then makes the entry visible to checks. It reports
// whether there was a free entry.
func (r *rows) put(h uint64, enter func(*counter.Entry)) bool {
	row, free := r.free(h)
	if free == 0 {
		return false
	}
	enter(r.at(row, free))
	r.tags[row].Store(r.tags[row].Load() | tagOf(h)*(free&-free>>7))
	return true
}

// putLocked enters a counter that is new or moves, see [counter.Counter.Move].
func (sh *shard) putLocked(c *counter.Counter, h, print uint64) {
	if !sh.rows.Load().put(h, func(e *counter.Entry) { c.Enter(e, print) }) {
		sh.extra = append(sh.extra, extra{print, c})
	}
}

// leaveExtraLocked removes a counter from those without an entry.
func (sh *shard) leaveExtraLocked(c *counter.Counter) {
	sh.extra = slices.DeleteFunc(sh.extra, func(x extra) bool { return x.c == c })
}

// comeInLocked gives c, which has no entry, an entry if its pair of rows has a free one now.
func (sh *shard) comeInLocked(c *counter.Counter, h, print uint64, now int64) {
	if _, free := sh.rows.Load().free(h); free == 0 {
		return
	}
	sh.leaveExtraLocked(c)
	c.Move(now, func() { sh.putLocked(c, h, print) })
}

// removeLocked removes c, which is dropped and has left its entry e.
func (sh *shard) removeLocked(c *counter.Counter, e *counter.Entry) {
	sh.live--
	if e == nil {
		sh.leaveExtraLocked(c)
		return
	}
	r := sh.rows.Load()
	i := uint64(uintptr(unsafe.Pointer(e))-uintptr(unsafe.Pointer(&r.entries[0]))) / uint64(unsafe.Sizeof(counter.Entry{}))
	at := &r.tags[i/rowSize]
	at.Store(at.Load() &^ (0xff << (i % rowSize * 8)))
}

// rowsLocked returns how many rows the shard should have.
func (sh *shard) rowsLocked() int {
	n := len(sh.rows.Load().tags)
	for n < sh.most && sh.live*loadOf > n*rowSize*loadMost {
		n *= 2
	}
	return n
}

// growLocked makes n rows and moves the counters into them. Checks find the old entries until all
// counters have moved. The lease of a counter that has moved is not in the old entry, so the check
// goes to the counter itself, also one that still has an old entry afterwards. A counter without an entry gets one at its next check.
func (sh *shard) growLocked(n int, now int64) {
	was, r := sh.rows.Load(), newRows(n)
	sh.hand, sh.swept = 0, 0
	for i := range was.entries {
		e := &was.entries[i]
		if c := e.Counter(); c != nil && !r.put(c.Hash(), c.MoveTo) {
			sh.extra = append(sh.extra, extra{e.Print(), c})
			c.Move(now, func() {})
		}
	}
	sh.rows.Store(r)
}

// all returns the counters of a shard.
func (sh *shard) all(list []*counter.Counter) []*counter.Counter {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	r := sh.rows.Load()
	for i := range r.entries {
		if c := r.entries[i].Counter(); c != nil {
			list = append(list, c)
		}
	}
	for _, x := range sh.extra {
		list = append(list, x.c)
	}
	return list
}
