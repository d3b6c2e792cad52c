package remote

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// encode checks a batch and turns it into a call of the script.
func (s *Store) encode(b *Batch) (*call, error) {
	if err := s.check(b); err != nil {
		return nil, err
	}
	accept := "0"
	if b.Accept {
		accept = "1"
	}
	c := &call{script: scriptBatch, keys: make([]string, 1, 1+len(b.Ops)), args: make([]any, 5, 5+14*len(b.Ops))}
	c.keys[0] = s.srv.keys.SeqKey(b.Shard, b.Node)
	c.args[0], c.args[1], c.args[2], c.args[3] = b.Seq, b.Prev, accept, ledgerTTL.Milliseconds()
	c.args[4] = fmt.Sprintf("%016x", b.Nonce)
	for i := range b.Ops {
		op := &b.Ops[i]
		c.keys = append(c.keys, op.Key)
		if op.Rule.Algorithm() == limit.AlgorithmFunnel {
			c.args = appendFunnel(c.args, op)
		} else {
			c.args = appendWindow(c.args, op)
		}
	}
	return c, nil
}

// The lengths of an operation's record, in fields, see lua/batch.lua: what each
// operation has, and what a group takes with its letter.
const (
	funnelFields = 7
	funnelBack   = 6
	funnelRaise  = 5
	funnelDebt   = 6
	windowFields = 5
	windowBack   = 3
	windowRaise  = 4
)

// appendFunnel appends the record of an operation on a funnel.
func appendFunnel(args []any, op *Op) []any {
	fields, handsBack := funnelFields, op.Back != limit.Span{}
	if handsBack {
		fields += funnelBack
	}
	if op.Raise {
		fields += funnelRaise
	}
	if op.Debt > 0 {
		fields += funnelDebt
	}
	units := min(op.Units, limit.MaxUnits)
	cost, ahead := toWire(op.Rule, op.Rule.Cost(units)), toWire(op.Rule, op.Ahead)
	args = append(args, "f", fields, units, rateText(op.Rule), cost.us, cost.rem, ahead.us, ahead.rem, horizonMS(op.Rule))
	if op.Raise {
		level := toWire(op.Rule, op.Known.Level)
		args = append(args, "r", op.Known.Gen, op.Known.Born, level.us, level.rem)
	}
	if op.Debt > 0 {
		top, one := toWire(op.Rule, op.Ceiling), toWire(op.Rule, op.Rule.Cost(1))
		args = append(args, "c", top.us, top.rem, min(op.Debt, units), one.us, one.rem)
	}
	if handsBack {
		back, top := toWire(op.Rule, op.Back), toWire(op.Rule, op.BackTop)
		args = append(args, "b", back.us, back.rem, op.BackGen, top.us, top.rem)
	}
	return args
}

// appendWindow appends the record of an operation on a window.
func appendWindow(args []any, op *Op) []any {
	fields, handsBack := windowFields, len(op.BackBuckets) > 0
	if handsBack {
		fields += windowBack
	}
	if op.Raise {
		fields += windowRaise
	}
	args = append(args, "w", fields, min(op.Units, limit.MaxUnits), widthUS(op.Rule), op.Rule.Kept(),
		horizonMS(op.Rule), formatBuckets(op.Buckets))
	if op.Raise {
		args = append(args, "r", op.Known.Gen, op.Known.Born, formatBuckets(op.Known.Buckets))
	}
	if handsBack {
		args = append(args, "b", formatBuckets(op.BackBuckets), op.BackGen)
	}
	return args
}

// formatBuckets writes a list as the scripts read it: " id:units:last id:units:last".
func formatBuckets(list []Bucket) string {
	b := make([]byte, 0, 32*len(list))
	for _, e := range list {
		b = append(b, ' ')
		b = strconv.AppendInt(b, e.ID, 10)
		b = append(b, ':')
		b = strconv.AppendInt(b, min(e.Units, limit.MaxUnits), 10)
		b = append(b, ':')
		b = strconv.AppendInt(b, int64((e.Last+time.Microsecond-1)/time.Microsecond), 10)
	}
	return string(b)
}

// check tells what is wrong with a batch. The scripts rely on it.
func (s *Store) check(b *Batch) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrInvalidBatch, fmt.Sprintf(format, args...))
	}
	switch {
	case b == nil:
		return bad("nil")
	case b.Shard < 0 || b.Shard >= s.srv.keys.Shards():
		return bad("shard %d of %d", b.Shard, s.srv.keys.Shards())
	case !validNode(b.Node):
		return bad("node %.80q", b.Node)
	case b.Seq < 1 || b.Seq > maxExact || b.Prev < 0 || b.Prev >= b.Seq:
		return bad("seq %d after %d", b.Seq, b.Prev)
	case len(b.Ops) > MaxOps:
		return bad("%d operations, at most %d are allowed", len(b.Ops), MaxOps)
	}
	shard := string(s.srv.keys.appendShard(nil, b.Shard))
	for i := range b.Ops {
		op := &b.Ops[i]
		if !strings.HasPrefix(op.Key, shard) {
			return bad("operation %d: key %.80q is not of shard %d", i, op.Key, b.Shard)
		}
		if why := op.check(); why != "" {
			return bad("operation %d: %s", i, why)
		}
	}
	return nil
}

// check returns what is wrong with an operation, or "".
func (op *Op) check() string {
	switch {
	case !op.Rule.Valid():
		return "no rule"
	case op.Units < 0:
		return fmt.Sprintf("%d units", op.Units)
	case op.Debt < 0 || op.Debt > op.Units:
		return fmt.Sprintf("%d of %d units in an outage", op.Debt, op.Units)
	case op.BackGen < 0 || op.BackGen > maxExact:
		return fmt.Sprintf("generation %d of what is handed back", op.BackGen)
	case op.Raise && (op.Known.Gen < 0 || op.Known.Gen > maxExact):
		return fmt.Sprintf("generation %d", op.Known.Gen)
	case op.Raise && (op.Known.Born < 0 || op.Known.Born > maxExact):
		return fmt.Sprintf("birth %d", op.Known.Born)
	}
	switch op.Rule.Algorithm() {
	case limit.AlgorithmFunnel:
		if !validSpan(op.Rule, op.Ahead) || !validSpan(op.Rule, op.Back) || !validSpan(op.Rule, op.BackTop) || !validSpan(op.Rule, op.Ceiling) ||
			op.Raise && !validRem(op.Rule, op.Known.Level) {
			return "a span that is negative or in another denominator"
		}
		return ""
	case limit.AlgorithmSlidingWindow, limit.AlgorithmFixedWindow:
		sum, ok := sumBuckets(op.Rule, op.Buckets)
		if !ok || sum > op.Units {
			return fmt.Sprintf("%d units, but %d in valid buckets", op.Units, sum)
		}
		if _, ok := sumBuckets(op.Rule, op.Known.Buckets); op.Raise && !ok {
			return "a known bucket that is not valid"
		}
		if _, ok := sumBuckets(op.Rule, op.BackBuckets); !ok {
			return "a bucket of units handed back that is not valid"
		}
		return ""
	}
	return fmt.Sprintf("%v cannot be booked in batches", op.Rule.Algorithm())
}

func validSpan(rule *limit.Rule, s limit.Span) bool { return s.NS >= 0 && validRem(rule, s) }

func validRem(rule *limit.Rule, s limit.Span) bool { return s.Rem >= 0 && s.Rem < rule.Units() }

// sumBuckets returns the units of all buckets, saturating, and whether each of
// them may cross to Lua.
func sumBuckets(rule *limit.Rule, list []Bucket) (sum int64, ok bool) {
	for _, b := range list {
		if b.ID < 0 || b.ID > maxExact || b.Units < 0 || b.Last < 0 || b.Last > rule.Width() {
			return sum, false
		}
		if sum += b.Units; sum < 0 {
			sum = math.MaxInt64
		}
	}
	return sum, true
}

// validNode tells whether a node's name is fit for a key's name.
func validNode(node string) bool {
	for _, c := range []byte(node) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && c != '-' && c != '_' {
			return false
		}
	}
	return node != "" && len(node) <= MaxNodeBytes
}

var verdicts = map[string]Verdict{
	"a": VerdictApplied, "d": VerdictDuplicate, "l": VerdictLost, "s": VerdictStale, "o": VerdictOther, "k": VerdictEarlier,
}

// decodeBatch reads the reply to a batch of ops.
func decodeBatch(reply any, ops []Op) (Reply, error) {
	r := newReader(reply)
	word := r.text()
	out := Reply{Verdict: verdicts[word], Now: r.now(), Total: r.number(limit.MaxUnits)}
	if out.Verdict == 0 {
		r.fail("unknown verdict %.20q", word)
	}
	n := r.number(MaxOps)
	withStates := out.Verdict == VerdictApplied || out.Verdict == VerdictDuplicate
	switch {
	case withStates && n != int64(len(ops)), !withStates && n != 0:
		r.fail("%d states for %d operations that were %v", n, len(ops), out.Verdict)
	case withStates && r.err == nil:
		out.States = make([]State, n)
		for i := range out.States {
			out.States[i] = r.state(&ops[i])
		}
	}
	if out.Verdict == VerdictEarlier {
		r.lists(&out)
	}
	if err := r.end(); err != nil {
		return Reply{}, err
	}
	return out, nil
}

// lists reads which operations of an earlier batch have failed, and what others were
// forgiven: "index,…" and "index:units,…", or "-".
func (r *reader) lists(out *Reply) {
	each := func(list string, f func(entry string) bool) {
		if list == "-" || r.err != nil {
			return
		}
		for entry := range strings.SplitSeq(list, ",") {
			if !f(entry) {
				r.fail("%.40q in a list", entry)
			}
		}
	}
	each(r.text(), func(entry string) bool {
		i, ok := parseNumber(entry, MaxOps)
		out.Failed = append(out.Failed, int(i))
		return ok
	})
	out.Forgiven = map[int]int64{}
	each(r.text(), func(entry string) bool {
		index, units, _ := strings.Cut(entry, ":")
		i, ok := parseNumber(index, MaxOps)
		n, good := parseNumber(units, limit.MaxUnits)
		out.Forgiven[int(i)] = n
		return ok && good
	})
}

// state reads the state of one operation's counter.
func (r *reader) state(op *Op) State {
	kind := r.text()
	funnel := op.Rule.Algorithm() == limit.AlgorithmFunnel
	switch {
	case kind == "e", kind == "b":
		return State{Err: &KeyError{Key: op.Key, Reason: bounded(r.text()), Booked: kind == "b"}}
	case (kind == "f" || kind == "g") && funnel:
		st := State{Gen: r.number(maxExact), Born: r.integer(maxExact), Level: r.level(op.Rule), Converted: kind == "g"}
		if op.Debt > 0 {
			st.Forgiven = r.integer(op.Debt)
		}
		return st
	case (kind == "w" || kind == "v") && !funnel:
		return State{Gen: r.number(maxExact), Born: r.integer(maxExact), Buckets: r.buckets(op.Rule), Converted: kind == "v"}
	}
	r.fail("unknown kind of state %.20q", kind)
	return State{}
}
