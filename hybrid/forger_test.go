package hybrid_test

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/limit"
)

// forger answers in the place of Redis, from a hook of go-redis. Honest, it
// keeps windows and funnels as the scripts do, with no more than the arithmetic
// of a textbook. Otherwise it says what dice tell it to, in the form of good
// replies: every number may be anything that the decoder lets pass.
type forger struct {
	mu       sync.Mutex
	honest   bool
	dice     func() byte
	ledgers  map[string]forged
	counters map[string]*kept
	forged   int // replies
}

// kept is a counter as Redis would keep it.
type kept struct {
	gen   int64
	born  int64           // when the newest unit was booked, µs
	units map[int64]int64 // window: units by bucket
	last  map[int64]int64 // and when the last one came, µs after it began
	tat   *big.Int        // funnel: when it is empty, in 1/D µs
}

// merge puts another state into k, and tells of which of the two the content counts.
func (k *kept) merge(gen, born, now int64) (mine, theirs bool) {
	top := max(k.gen, gen)
	mine, theirs = k.gen == top || k.born >= top || max(top, born) > now, gen == top || born >= top
	if !mine {
		k.born = 0
	}
	if k.gen = top; theirs {
		k.born = max(k.born, born)
	}
	return mine, theirs
}

func newForger(dice func() byte) *forger {
	return &forger{dice: dice, ledgers: map[string]forged{}, counters: map[string]*kept{}}
}

func (f *forger) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *forger) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return f.answer(cmd) }
}

func (f *forger) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) (first error) {
		for _, cmd := range cmds {
			if err := f.answer(cmd); first == nil {
				first = err
			}
		}
		return first
	}
}

// said is an error that Redis sent.
type said string

func (s said) Error() string { return string(s) }
func (said) RedisError()     {}

// forgedErrors are what a server may say instead of an answer.
var forgedErrors = []said{
	"NOSCRIPT no", "LOADING", "READONLY no", "NOAUTH no", "WRONGTYPE no", "MOVED 1 127.0.0.1:1", "OOM no", "ERR what", "BUSY", "",
}

func (f *forger) answer(cmd redis.Cmder) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	args := cmd.Args()
	if name := args[0]; name != "evalsha" && name != "eval" { // of Leave
		return nil
	}
	nkeys := args[2].(int)
	keys, rest := args[3:3+nkeys], args[3+nkeys:]
	forge := f.forge
	if f.honest || f.dice()%4 == 0 {
		forge = nil
	}
	var reply []any
	switch key := keys[0].(string); {
	case strings.Contains(key, ":nodes:"):
		seq := int64(0)
		if len(keys) > 2 {
			seq = f.ledgers[keys[2].(string)].seq
		}
		reply = []any{"1", micros(), fmt.Sprint(seq)}
	case len(rest) == 1:
		reply = []any{fmt.Sprint(f.ledgers[key].seq), micros()}
	case forge != nil && f.dice()%2 == 0:
		reply = f.invent(keys[1:], rest[4:]) // and nothing was applied
	default:
		reply = f.apply(key, keys[1:], rest)
	}
	if forge != nil {
		if err := forge(reply); err != nil {
			cmd.SetErr(err)
			return err
		}
	}
	cmd.(interface{ SetVal(any) }).SetVal(reply)
	return nil
}

func micros() string { return fmt.Sprint(time.Now().UnixMicro()) }

// number returns something that the decoder may let pass.
func (f *forger) number() string { return fmt.Sprint(f.integer()) }

func (f *forger) integer() int64 {
	now := time.Now().UnixMicro()
	palette := []int64{0, 1, 2, 10, 1000, 1_000_000, 1 << 31, 1 << 52, 1<<53 - 1, 1 << 53, math.MaxInt64, -1,
		now, now + 1, now - 3_600_000_000, now + 3_600_000_000, now / 100_000, now/100_000 + 7, now / 8_640_000_000}
	return palette[int(f.dice())%len(palette)]
}

// forge spoils a reply: another number in one place, or an error instead.
func (f *forger) forge(reply []any) error {
	f.forged++
	switch f.dice() % 8 {
	case 0:
		return forgedErrors[int(f.dice())%len(forgedErrors)]
	case 1, 2, 3:
		if at := int(f.dice()) % len(reply); f.dice()%2 == 0 {
			reply[at] = f.number()
		} else {
			reply[at] = f.integer()
		}
	case 4:
		reply[0] = string("adls"[f.dice()%4])
	}
	return nil
}

// invent makes up an answer to a batch.
func (f *forger) invent(keys, records []any) []any {
	verdict := string("aaddls"[f.dice()%6])
	out := []any{verdict, f.number(), f.number(), fmt.Sprint(len(keys))}
	if verdict == "l" || verdict == "s" {
		out[3] = "0"
		return out
	}
	for range keys {
		kind, fields := records[0].(string), records[1].(int)
		asked := slices.Contains(records[2:2+fields], any("c")) // for what is forgiven
		records = records[2+fields:]
		switch d := f.dice(); {
		case d%8 == 0:
			out = append(out, string("eb"[d/8%2]), "because")
		case kind == "f":
			out = append(out, string("fffg"[d/8%4]), f.number(), f.integer(), f.integer(), int64(d))
			if asked && d%16 > 1 {
				out = append(out, f.integer())
			}
		default:
			var ids []int64
			var list strings.Builder
			for range d % 5 {
				id, _ := strconv.ParseInt(f.number(), 10, 64)
				ids = append(ids, id)
			}
			slices.Sort(ids)
			for _, id := range ids {
				list.WriteString(fmt.Sprintf(" %d:%s", id, f.number()))
			}
			out = append(out, string("wwwv"[d/5%4]), f.number(), f.integer(), list.String())
		}
	}
	return out
}

// apply does what the script of batches does.
func (f *forger) apply(ledger string, keys, args []any) []any {
	seq, prev, nonce, last := args[0].(int64), args[1].(int64), args[4].(string), f.ledgers[ledger].seq
	verdict := "l"
	switch {
	case last == seq && f.ledgers[ledger].nonce == nonce:
		verdict = "d"
	case last == seq:
		verdict = "o"
	case last > seq:
		verdict = "s"
	case last == prev, args[2] == "1":
		verdict = "a"
	}
	out := []any{verdict, micros(), "0", "0"}
	if verdict != "a" && verdict != "d" {
		return out
	}
	f.ledgers[ledger] = forged{seq, nonce}
	out[3] = fmt.Sprint(len(keys))
	for i, r := range split(args[5:]) {
		k := f.counters[keys[i].(string)]
		if k == nil {
			k = &kept{units: map[int64]int64{}, last: map[int64]int64{}, tat: new(big.Int)}
			f.counters[keys[i].(string)] = k
		}
		if r.kind == "f" {
			out = append(out, k.funnel(r.fields, verdict == "a")...)
		} else {
			out = append(out, k.window(r.fields, verdict == "a")...)
		}
	}
	return out
}

// forged is the record of a node's latest batch.
type forged struct {
	seq   int64
	nonce string
}

type record struct {
	kind   string
	fields []any
}

func split(args []any) (out []record) {
	for len(args) > 0 {
		n := 2 + args[1].(int)
		out, args = append(out, record{args[0].(string), args[2:n]}), args[n:]
	}
	return out
}

// top is the latest time that Redis counts to, in µs.
const top = 1<<53 - 1

// instant returns us + rem/D in 1/D µs.
func instant(us, rem, d int64) *big.Int {
	x := new(big.Int).Mul(big.NewInt(us), big.NewInt(d))
	return x.Add(x, big.NewInt(rem))
}

func later(a, b *big.Int) *big.Int {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

func (k *kept) funnel(fields []any, apply bool) []any {
	raise := len(fields) > 7 && fields[7] == "r"
	n := make([]int64, len(fields))
	for i, v := range fields {
		switch v := v.(type) {
		case int64:
			n[i] = v
		case int:
			n[i] = int64(v)
		case string: // the rate: "D/T"
			text, _, _ := strings.Cut(v, "/")
			n[i], _ = strconv.ParseInt(text, 10, 64)
		}
	}
	d, now := n[1], time.Now().UnixMicro()
	at := instant(now, 0, d)
	last := instant(top, 0, d)
	capped := func(x *big.Int) *big.Int {
		if x.Cmp(last) > 0 {
			return last
		}
		return x
	}
	if apply && raise {
		known := capped(new(big.Int).Add(at, instant(n[10], n[11], d)))
		mine, theirs := k.merge(n[8], n[9], now)
		if !mine {
			k.tat = new(big.Int)
		}
		if theirs {
			k.tat = later(k.tat, known)
		}
	}
	if apply && n[0] > 0 {
		k.born = now
		k.tat = capped(new(big.Int).Add(k.tat, instant(n[2], n[3], d)))
		k.tat = later(k.tat, capped(new(big.Int).Add(at, instant(n[4], n[5], d))))
	}
	level := new(big.Int).Sub(k.tat, at)
	if level.Sign() < 0 {
		level.SetInt64(0)
	}
	us, rem := new(big.Int).QuoRem(level, big.NewInt(d), new(big.Int))
	answer := []any{"f", fmt.Sprint(k.gen), k.born, us.Int64(), rem.Int64()}
	if slices.Contains(fields, any("c")) {
		answer = append(answer, int64(0)) // it forgives nothing
	}
	return answer
}

func (k *kept) window(fields []any, apply bool) []any {
	width, keep := fields[1].(int64), int64(fields[2].(int))
	cur := time.Now().UnixMicro() / width
	each := func(list any, f func(id, units int64)) {
		for entry := range strings.FieldsSeq(list.(string)) {
			var id, units, last int64
			fmt.Sscanf(entry, "%d:%d:%d", &id, &units, &last)
			if id > cur {
				id, last = cur, time.Now().UnixMicro()%width
			}
			f(id, units)
			k.last[id] = max(k.last[id], last)
		}
	}
	if apply && len(fields) > 5 && fields[5] == "r" {
		mine, theirs := k.merge(fields[6].(int64), fields[7].(int64), time.Now().UnixMicro())
		if !mine {
			k.units, k.last = map[int64]int64{}, map[int64]int64{}
		}
		known := map[int64]int64{}
		each(fields[8], func(id, units int64) { known[id] = min(known[id]+units, 1<<53) })
		for id, units := range known {
			if theirs {
				k.units[id] = max(k.units[id], units)
			}
		}
	}
	if apply && fields[0].(int64) > 0 {
		k.born = time.Now().UnixMicro()
	}
	if apply {
		each(fields[4], func(id, units int64) { k.units[id] = min(k.units[id]+units, 1<<53) })
	}
	var list strings.Builder
	for id := max(cur-keep, 0); id <= cur; id++ {
		if k.units[id] > 0 {
			list.WriteString(fmt.Sprintf(" %d:%d:%d", id, k.units[id], k.last[id]))
		}
	}
	return []any{"w", fmt.Sprint(k.gen), k.born, list.String()}
}

// remaining returns what is left of a key at a moment, as the counter stands.
func (f *forger) remaining(key string, rule *limit.Rule, at time.Time) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	k, now := f.counters[counterKey(rule, key)], at.UnixMicro()
	if k == nil {
		return rule.Limit()
	}
	used := new(big.Rat)
	if rule.Algorithm() == limit.AlgorithmFunnel {
		d := 1000 * rule.Units()
		if level := new(big.Int).Sub(k.tat, instant(now, 0, d)); level.Sign() > 0 {
			// level/D µs at units per period: level·1000·units / (D·period) units
			used.SetFrac(level, big.NewInt(int64(rule.Period())))
		}
	} else {
		width, keep := rule.Width().Microseconds(), int64(rule.Kept())
		for age := range keep + 1 {
			id := now/width - age
			part := k.units[id]
			if age > 0 && age == keep {
				part -= rule.Gone(part, k.last[id]*1000, now%width*1000)
			}
			used.Add(used, new(big.Rat).SetInt64(part))
		}
	}
	left := used.Sub(new(big.Rat).SetInt64(rule.Limit()), used)
	if left.Sign() < 0 {
		return 0
	}
	return new(big.Int).Quo(left.Num(), left.Denom()).Int64()
}
