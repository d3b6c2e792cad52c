package redisstore

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// encode turns a batch into a call of the script.
func (s *Store) encode(b *Batch) *call {
	c := &call{script: scriptBatch, keys: make([]string, 1, 1+len(b.Ops))}
	c.keys[0] = s.keys.SeqKey(b.Shard, b.Node)
	t := batchTexts.Get().(*batchText)
	t.reset(s)
	for i := range b.Ops {
		c.keys = append(c.keys, b.Ops[i].Key)
		t.add(&b.Ops[i])
	}
	c.args = []any{b.Seq, b.Prev, b.Accept, LedgerTTL.Milliseconds(), fmt.Sprintf("%016x", b.Nonce), t.units, string(t.rules), string(t.ops), ceilMS(b.MaxLag)}
	t.s = nil
	batchTexts.Put(t)
	return c
}

// batchText is a buffer for the texts of a batch, its rules and its operations. Their
// format is in lua/batch.lua. A copy is sent, because hooks of the client may keep it.
type batchText struct {
	s          *Store
	rules, ops []byte
	units      int64               // of all operations
	known      map[*limit.Rule]int // the number of each rule among those of its kind
	count      [2]int              // of leaky buckets, of windows
	rule       *limit.Rule         // the latest one
	name       []byte              // its name in operations
}

var batchTexts = sync.Pool{New: func() any { return &batchText{known: map[*limit.Rule]int{}} }}

func (t *batchText) reset(s *Store) {
	clear(t.known) // or it would keep the rules alive
	*t = batchText{s: s, rules: t.rules[:0], ops: t.ops[:0], known: t.known, name: t.name[:0]}
}

// add writes an operation.
func (t *batchText) add(op *report.Report) {
	units := min(op.Units, arith.MaxUnits)
	t.units = min(t.units+units, arith.MaxUnits)
	if op.Rule != t.rule {
		t.use(op.Rule)
	}
	t.ops = append(t.ops, t.name...)
	t.ops = appendNumbers(t.ops, units)
	if arith.Of(op.Rule).Algorithm == arith.TokenBucket {
		t.funnel(op, units)
	} else {
		t.window(op)
	}
	t.ops = append(t.ops, '\n')
}

// use makes a rule the latest, and writes it if it is new.
func (t *batchText) use(rule *limit.Rule) {
	kind, letter := 0, byte('f')
	if arith.Of(rule).Algorithm != arith.TokenBucket {
		kind, letter = 1, 'w'
	}
	first := letter
	if arith.Of(rule).Calendar != nil {
		first = 'c'
	}
	n := t.known[rule]
	if n == 0 {
		t.count[kind]++
		n = t.count[kind]
		t.known[rule] = n
		t.rules = append(t.rules, first, ' ')
		switch {
		case kind == 0:
			one := toWire(rule, arith.Of(rule).Cost(1))
			t.rules = append(t.rules, rateText(rule)...)
			t.rules = appendNumbers(t.rules, horizonMS(rule), one.us, one.rem)
		case first == 'c':
			t.rules = strconv.AppendInt(t.rules, horizonMS(rule), 10)
			t.rules = t.s.appendCalendar(append(t.rules, ' '), rule)
		default:
			t.rules = strconv.AppendInt(t.rules, widthUS(rule), 10)
			t.rules = appendNumbers(t.rules, int64(arith.Of(rule).Kept), horizonMS(rule))
		}
		t.rules = append(t.rules, '\n')
	}
	t.rule, t.name = rule, strconv.AppendInt(append(t.name[:0], letter), int64(n), 10)
}

// funnel writes the fields of an operation on a leaky bucket besides units.
func (t *batchText) funnel(op *report.Report, units int64) {
	t.span(op, arith.Of(op.Rule).Cost(units))
	t.span(op, op.Ahead)
	if op.Restore {
		level := toWire(op.Rule, op.Known.Level)
		t.group('r', op.Known.Gen, op.Known.Born, level.us, level.rem)
	}
	if op.Debt > 0 {
		top := toWire(op.Rule, op.Ceiling)
		t.group('c', top.us, top.rem, min(op.Debt, units))
	}
	if op.Waits > 0 {
		t.group('a', int64((op.Waits+time.Microsecond-1)/time.Microsecond), toWire(op.Rule, arith.Of(op.Rule).Full).us)
	}
	if back := toWire(op.Rule, op.Back); op.Back != (arith.Span{}) {
		t.group('b', back.us, back.rem, op.BackGen)
		t.span(op, op.BackTop)
	}
}

// window writes the fields of an operation on a window besides units.
func (t *batchText) window(op *report.Report) {
	t.ops = appendBuckets(t.ops, op.Buckets)
	if op.Restore {
		t.group('r', op.Known.Gen, op.Known.Born)
		t.ops = appendBuckets(t.ops, op.Known.Buckets)
	}
	if len(op.BackBuckets) > 0 {
		t.group('b', op.BackGen)
		t.ops = appendBuckets(t.ops, op.BackBuckets)
	}
}

// group begins a group.
func (t *batchText) group(letter byte, fields ...int64) {
	t.ops = appendNumbers(append(t.ops, ';', letter), fields...)
}

func (t *batchText) span(op *report.Report, s arith.Span) {
	w := toWire(op.Rule, s)
	t.ops = appendNumbers(t.ops, w.us, w.rem)
}

// appendNumbers appends a space and a number for each.
func appendNumbers(b []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		b = strconv.AppendInt(append(b, ' '), n, 10)
	}
	return b
}

// appendBuckets appends a list in the format of the scripts: " id:units:last id:units:last".
func appendBuckets(b []byte, list []report.Bucket) []byte {
	for _, e := range list {
		b = append(appendNumbers(b, e.ID), ':')
		b = append(strconv.AppendInt(b, min(e.Units, arith.MaxUnits), 10), ':')
		b = strconv.AppendInt(b, int64((e.Last+time.Microsecond-1)/time.Microsecond), 10)
	}
	return b
}
