package redisstore

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

var (
	anyFunnel = limit.Must(limit.TokenBucket("f", 7, time.Second, 10))
	anyWindow = limit.Must(limit.SlidingWindow("w", 10, time.Second))
)

// encoded writes a decoded reply the way the scripts do, in lines; short where they may.
func encoded(r Reply, ops []report.Report, short bool) []string {
	word := map[Verdict]string{VerdictApplied: "a", VerdictDuplicate: "d", VerdictLost: "l", VerdictStale: "s", VerdictOther: "o"}[r.Verdict]
	now := r.Now.Microseconds()
	out := []string{fmt.Sprintf("%s %d", word, now)}
	for i, s := range r.States {
		var key *limit.KeyError
		kind, content := "f", ""
		if ops[i].Rule == anyFunnel {
			w := toWire(anyFunnel, s.Level)
			content = fmt.Sprintf(" %d %d", now+w.us, w.rem)
		} else {
			kind, content = "w", string(appendBuckets(nil, s.Buckets))
		}
		if s.Converted {
			kind = map[string]string{"f": "g", "w": "v"}[kind]
		}
		if ops[i].Debt > 0 {
			content += fmt.Sprintf(" %d", s.Forgiven)
		}
		switch {
		case errors.As(s.Err, &key) && s.Booked:
			out = append(out, "b "+key.Reason)
		case key != nil:
			out = append(out, "e "+key.Reason)
		case short && s.Gen == 0 && s.Born == now && !s.Converted && ops[i].Debt == 0 && kind == "f":
			out = append(out, content[1:])
		case short && s.Gen == 0 && s.Born == now && !s.Converted && ops[i].Debt == 0:
			out = append(out, content)
		default:
			out = append(out, fmt.Sprintf("%s %d %d%s", kind, s.Gen, s.Born, content))
		}
	}
	return out
}

// mutate spoils a word of a reply, or leaves it as it is.
func mutate(reply string, at, how uint8, text string, number int64) string {
	words := strings.SplitAfter(strings.ReplaceAll(reply, "\n", "\n "), " ")
	i := int(at) % len(words)
	word := strings.TrimRight(words[i], " \n")
	space := words[i][len(word):]
	switch how % 10 {
	case 0:
		return reply
	case 1:
		words[i] = text + space
	case 2:
		words[i] = fmt.Sprint(number) + space
	case 3:
		words[i] = word + fmt.Sprint(number) + space
	case 4:
		words[i] = ""
	case 5:
		words[i] = word
	case 6:
		words[i] = word + text + space
	case 7:
		words = append(words, text)
	case 8:
		words[i] = word + "\n"
	case 9:
		words[i] = new(big.Int).Mul(big.NewInt(number), big.NewInt(number)).String() + space
	}
	return strings.ReplaceAll(strings.Join(words, ""), "\n ", "\n")
}

// FuzzDecodeMutated spoils good replies in one place. What the decoder accepts
// all the same, it must have understood: written again it is what was read.
//
// Fault 48: no reply, however wrong, panics or gives a negative number.
func FuzzDecodeMutated(f *testing.F) {
	f.Add(uint8(0), int64(1), int64(2), int64(3), int64(4), uint8(0), uint8(0), "", int64(0))
	f.Add(uint8(0), int64(0), int64(2), int64(3), int64(4), uint8(1), uint8(6), "0", int64(0))     // a leading zero
	f.Add(uint8(0), int64(0), int64(2), int64(3), int64(4), uint8(10), uint8(6), " 1:1", int64(0)) // not in order
	f.Add(uint8(0), int64(0), int64(2), int64(3), int64(4), uint8(10), uint8(6), " 4:1", int64(0)) // one bucket twice
	f.Add(uint8(0), int64(0), int64(2), int64(3), int64(4), uint8(10), uint8(6), "\n9:1", int64(0))
	f.Add(uint8(0), int64(0), int64(2), int64(3), int64(4), uint8(10), uint8(1), "0:0", int64(0)) // nothing before the first
	for i := range uint8(40) {
		f.Add(i, int64(1)<<53, int64(i), int64(1)<<52, int64(6999), i, i/3, " 1:2:3 4:5:6", int64(-1)<<(i%64))
		f.Add(i, int64(i), int64(maxExact), int64(1), int64(7000), i/2, i, "9007199254740993", int64(1)<<53-1)
	}
	f.Fuzz(func(t *testing.T, kind uint8, now, gen, a, b int64, at, how uint8, text string, number int64) {
		ops := []report.Report{{Key: "f", Rule: anyFunnel, Units: 7, Debt: int64(kind >> 6)}, {Key: "w", Rule: anyWindow}}
		good := Reply{Verdict: Verdict(kind%4) + 1, Now: time.Duration(now&(maxExact>>1)) * time.Microsecond}
		if good.Verdict <= VerdictDuplicate {
			good.States = []report.State{
				{Gen: gen & maxExact, Born: now & (maxExact >> 1), Level: arith.Span{NS: a & (1<<40 - 1), Rem: b & 3}, Converted: kind&2 != 0, Forgiven: b & (ops[0].Debt / 2)},
				{Gen: gen & maxExact, Born: b & maxExact, Converted: kind&8 != 0, Buckets: []report.Bucket{{ID: a & (maxExact >> 1), Units: b & maxExact, Last: arith.Of(anyWindow).Width}, {ID: a&(maxExact>>1) + 1, Units: 1}}},
			}
			if kind&16 != 0 {
				good.States[kind>>5&1] = report.State{Err: &limit.KeyError{Key: ops[kind>>5&1].Key, Reason: "no"}, Booked: kind&4 != 0}
			}
		}
		before := strings.Join(encoded(good, ops, kind&32 != 0), "\n")
		reply := mutate(before, at, how, text, number)
		r, err := decodeBatch(reply, ops)
		checkDecoded(t, r, err, ops)
		if err != nil && reply == before {
			t.Errorf("%q: %v", before, err)
		}
		if err != nil || len(text) >= 100 { // a long reason is cut short
			return
		}
		long, short := encoded(r, ops, false), encoded(r, ops, true)
		for i, line := range strings.Split(reply, "\n") {
			if line != long[i] && line != short[i] {
				t.Errorf("%q was read as %q", reply, long)
			}
		}
	})
}
