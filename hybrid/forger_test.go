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

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// forger answers in the place of Redis, from a hook of go-redis. Honest, it
// keeps windows and leaky buckets as the scripts do, with no more than the arithmetic
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
	tat   *big.Int        // leaky bucket: when it is empty, in 1/D µs
}

// merge puts another state into k, and reports which of the two contents counts.
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
	if word := args[0]; word != "evalsha" && word != "eval" { // of Leave
		return nil
	}
	nkeys := args[2].(int)
	keys, rest := args[3:3+nkeys], args[3+nkeys:]
	forge := f.forge
	if f.honest || f.dice()%4 == 0 {
		forge = nil
	}
	var words []string
	lines := false // the reply is a text of lines, of which each word is " …" or "\n…"
	switch key := name(keys[0]); {
	case strings.Contains(key, ":nodes:"):
		seq := int64(0)
		if len(keys) > 3 {
			seq = f.ledgers[name(keys[3])].seq
		}
		words = []string{"1", micros(), fmt.Sprint(seq), ""}
	case len(rest) == 1:
		words = []string{fmt.Sprint(f.ledgers[key].seq), micros()}
	default:
		lines = true
		if records := split(rest[6].(string), rest[7].(string)); forge != nil && f.dice()%2 == 0 {
			words = f.invent(records) // and nothing was applied
		} else {
			words = f.apply(key, keys[1:], rest, records)
		}
	}
	if forge != nil {
		if err := forge(words); err != nil {
			cmd.SetErr(err)
			return err
		}
	}
	cmd.(interface{ SetVal(any) }).SetVal(spoken(words, lines))
	return nil
}

// name returns a key as it was given to the client.
func name(arg any) string {
	if p, ok := arg.(*string); ok {
		return *p
	}
	return arg.(string)
}

// spoken returns a reply as go-redis hands it over.
func spoken(words []string, lines bool) any {
	if lines {
		return strings.Join(words, "")
	}
	items := make([]any, len(words))
	for i, w := range words {
		items[i] = w
	}
	return items
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
func (f *forger) forge(words []string) error {
	f.forged++
	switch f.dice() % 8 {
	case 0:
		return forgedErrors[int(f.dice())%len(forgedErrors)]
	case 1, 2, 3:
		at := int(f.dice()) % len(words)
		word := words[at]
		words[at] = word[:len(word)-len(strings.TrimLeft(word, " \n"))] + f.number()
	case 4:
		words[0] = string("adls"[f.dice()%4])
	}
	return nil
}

// invent makes up an answer to a batch.
func (f *forger) invent(records []record) []string {
	fate := string("aaddls"[f.dice()%6])
	out := []string{fate, " " + f.number(), " " + f.number()}
	if fate == "l" || fate == "s" {
		return out
	}
	for _, r := range records {
		switch d := f.dice(); {
		case d%8 == 0:
			out = append(out, "\n"+string("eb"[d/8%2]), " because")
		case d%8 == 1 && r.kind == "f":
			out = append(out, "\n"+f.number(), " "+fmt.Sprint(d))
		case r.kind == "f":
			out = append(out, "\n"+string("fffg"[d/8%4]), " "+f.number(), " "+f.number(), " "+f.number(), " "+fmt.Sprint(d))
			if r.debt && d%16 > 1 { // for what is forgiven
				out = append(out, " "+f.number())
			}
		default:
			var ids []int64
			for range d % 5 {
				id, _ := strconv.ParseInt(f.number(), 10, 64)
				ids = append(ids, id)
			}
			slices.Sort(ids)
			start := "\n"
			if d%8 != 1 {
				out, start = append(out, "\n"+string("wwwv"[d/5%4]), " "+f.number(), " "+f.number()), ""
			}
			for _, id := range ids {
				out, start = append(out, fmt.Sprintf("%s %d:%s:%d", start, id, f.number(), d)), ""
			}
			if start != "" {
				out = append(out, start)
			}
		}
	}
	return out
}

// apply does what the script of batches does.
func (f *forger) apply(ledger string, keys, args []any, records []record) []string {
	seq, prev, nonce, last := args[0].(int64), args[1].(int64), args[4].(string), f.ledgers[ledger].seq
	fate := "l"
	switch {
	case last == seq && f.ledgers[ledger].nonce == nonce:
		fate = "d"
	case last == seq:
		fate = "o"
	case last > seq:
		fate = "s"
	case last == prev, args[2] == "1":
		fate = "a"
	}
	out := []string{fate, " " + micros()}
	if fate != "a" && fate != "d" {
		return out
	}
	f.ledgers[ledger] = forged{seq, nonce}
	for i, r := range records {
		k := f.counters[name(keys[i])]
		if k == nil {
			k = &kept{units: map[int64]int64{}, last: map[int64]int64{}, tat: new(big.Int)}
			f.counters[name(keys[i])] = k
		}
		if r.kind == "f" {
			out = append(out, k.funnel(r, fate == "a")...)
		} else {
			out = append(out, k.window(r, fate == "a")...)
		}
	}
	return out
}

// forged is the record of a node's latest batch.
type forged struct {
	seq   int64
	nonce string
}

// record is an operation of a batch.
type record struct {
	kind        string
	d           int64 // of a leaky bucket's rate
	width, kept int64 // of a window
	units       int64
	cost, ahead [2]int64 // µs and a rest
	list        string
	raise, debt bool
	gen, born   int64 // what is raised
	level       [2]int64
	known       string
}

func split(rules, ops string) (out []record) {
	known, count := map[string]record{}, map[string]int{}
	for line := range strings.Lines(rules) {
		var r record
		if _, err := fmt.Sscanf(line, "f %d/", &r.d); err != nil {
			fmt.Sscanf(line, "w %d %d", &r.width, &r.kept)
		}
		r.kind = line[:1]
		count[r.kind]++
		known[r.kind+fmt.Sprint(count[r.kind])] = r
	}
	for line := range strings.Lines(ops) {
		groups := strings.Split(strings.TrimSuffix(line, "\n"), ";")
		word, base, _ := strings.Cut(groups[0], " ")
		r := known[word]
		if r.kind == "f" {
			fmt.Sscan(base, &r.units, &r.cost[0], &r.cost[1], &r.ahead[0], &r.ahead[1])
		} else {
			var units string
			units, r.list, _ = strings.Cut(base, " ")
			r.units, _ = strconv.ParseInt(units, 10, 64)
		}
		for _, g := range groups[1:] {
			switch fields := strings.SplitN(g, " ", 4); {
			case fields[0] == "c":
				r.debt = true
			case fields[0] == "r" && r.kind == "f":
				r.raise = true
				fmt.Sscan(g[1:], &r.gen, &r.born, &r.level[0], &r.level[1])
			case fields[0] == "r":
				r.raise, r.known = true, strings.Join(fields[3:], " ")
				fmt.Sscan(g[1:], &r.gen, &r.born)
			}
		}
		out = append(out, r)
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

func (k *kept) funnel(r record, apply bool) []string {
	d, now := r.d, time.Now().UnixMicro()
	at := instant(now, 0, d)
	last := instant(top, 0, d)
	capped := func(x *big.Int) *big.Int {
		if x.Cmp(last) > 0 {
			return last
		}
		return x
	}
	if apply && r.raise {
		known := capped(new(big.Int).Add(at, instant(r.level[0], r.level[1], d)))
		mine, theirs := k.merge(r.gen, r.born, now)
		if !mine {
			k.tat = new(big.Int)
		}
		if theirs {
			k.tat = later(k.tat, known)
		}
	}
	if apply && r.units > 0 {
		k.born = now
		k.tat = capped(new(big.Int).Add(k.tat, instant(r.cost[0], r.cost[1], d)))
		k.tat = later(k.tat, capped(new(big.Int).Add(at, instant(r.ahead[0], r.ahead[1], d))))
	}
	us, rem := new(big.Int).QuoRem(later(k.tat, at), big.NewInt(d), new(big.Int))
	answer := []string{"\nf", fmt.Sprint(" ", k.gen), fmt.Sprint(" ", k.born), fmt.Sprint(" ", us), fmt.Sprint(" ", rem)}
	if r.debt {
		answer = append(answer, " 0") // it forgives nothing
	}
	return answer
}

func (k *kept) window(r record, apply bool) []string {
	width, keep := r.width, r.kept
	cur := time.Now().UnixMicro() / width
	each := func(list string, f func(id, units int64)) {
		for entry := range strings.FieldsSeq(list) {
			var id, units, last int64
			fmt.Sscanf(entry, "%d:%d:%d", &id, &units, &last)
			if id > cur {
				id, last = cur, time.Now().UnixMicro()%width
			}
			f(id, units)
			k.last[id] = max(k.last[id], last)
		}
	}
	if apply && r.raise {
		mine, theirs := k.merge(r.gen, r.born, time.Now().UnixMicro())
		if !mine {
			k.units, k.last = map[int64]int64{}, map[int64]int64{}
		}
		known := map[int64]int64{}
		each(r.known, func(id, units int64) { known[id] = min(known[id]+units, 1<<53) })
		for id, units := range known {
			if theirs {
				k.units[id] = max(k.units[id], units)
			}
		}
	}
	if apply && r.units > 0 {
		k.born = time.Now().UnixMicro()
	}
	if apply {
		each(r.list, func(id, units int64) { k.units[id] = min(k.units[id]+units, 1<<53) })
	}
	answer := []string{"\nw", fmt.Sprint(" ", k.gen), fmt.Sprint(" ", k.born)}
	for id := max(cur-keep, 0); id <= cur; id++ {
		if k.units[id] > 0 {
			answer = append(answer, fmt.Sprintf(" %d:%d:%d", id, k.units[id], k.last[id]))
		}
	}
	return answer
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
		width, keep := arith.Of(rule).Width.Microseconds(), int64(arith.Of(rule).Kept)
		for age := range keep + 1 {
			id := now/width - age
			part := k.units[id]
			if age > 0 && age == keep {
				part -= arith.Of(rule).Gone(part, k.last[id]*1000, now%width*1000)
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
