package rules

import (
	"slices"
	"strings"
)

// patterns finds the first pattern of a list that a value matches. A * of a pattern stands for
// any text, also for none, and there may be several.
//
// A file may have thousands of them. So patterns are grouped by their text before the first
// star and then by that after the last one: a look-up asks a map once for each length that
// such texts have, and goes through what it finds. Nothing is allocated.
type patterns struct {
	count int
	heads affixes[*affixes[*group]] // by the text before the first star, then after the last
}

// group is the patterns that begin alike and end alike.
type group struct {
	list   []pattern          // in the order of the file
	inner  affixes[[]pattern] // the same, by the first text between two stars; "": there is none
	begins [4]uint64          // the bytes with which such texts begin, a bit for each
}

// pattern is what is left of a pattern in its group.
type pattern struct {
	place int      // in the order of the file
	inner []string // the texts between the stars
	to    *level
}

// affixes has values by texts that are a part of others.
type affixes[T any] struct {
	of      map[string]T
	lengths []int // of the texts, shortest first, each once
}

func (a *affixes[T]) put(text string, v T) {
	if a.of == nil {
		a.of = map[string]T{}
	}
	a.of[text] = v
	if i, found := slices.BinarySearch(a.lengths, len(text)); !found {
		a.lengths = slices.Insert(a.lengths, i, len(text))
	}
}

func (p *patterns) put(value string, to *level) {
	texts := strings.Split(value, "*")
	last := len(texts) - 1
	tails := p.heads.of[texts[0]]
	if tails == nil {
		tails = &affixes[*group]{}
		p.heads.put(texts[0], tails)
	}
	g := tails.of[texts[last]]
	if g == nil {
		g = &group{}
		tails.put(texts[last], g)
	}
	// Two stars side by side are one.
	inner := slices.DeleteFunc(texts[1:last], func(text string) bool { return text == "" })
	first := ""
	if len(inner) > 0 {
		first = inner[0]
		g.begins[first[0]/64] |= 1 << (first[0] % 64)
	}
	one := pattern{p.count, inner, to}
	g.list = append(g.list, one)
	g.inner.put(first, append(g.inner.of[first], one))
	p.count++
}

// find returns where the first pattern leads that a value matches; nil: none does.
func (p *patterns) find(value string) *level {
	best := pattern{place: p.count}
	for _, n := range p.heads.lengths {
		if n > len(value) {
			break
		}
		tails, rest := p.heads.of[value[:n]], value[n:]
		if tails == nil {
			continue
		}
		for _, n := range tails.lengths {
			if n > len(rest) {
				break // a text is not the beginning and the end at once
			}
			end := len(rest) - n
			if g := tails.of[rest[end:]]; g != nil {
				best = g.better(rest[:end], best)
			}
		}
	}
	return best.to
}

// manyPatterns is for how many patterns of a group, for each length of their first inner
// texts, they are tried one after another: that costs less than to ask a map at each place of
// the text.
const manyPatterns = 64

// better returns the first pattern of a group that matches the text between the beginning and
// the end of a value, or best if that comes before it.
func (g *group) better(text string, best pattern) pattern {
	if len(g.list) <= manyPatterns*len(g.inner.lengths) {
		return firstOf(g.list, text, best)
	}
	best = firstOf(g.inner.of[""], text, best)
	for i := range len(text) {
		if g.begins[text[i]/64]>>(text[i]%64)&1 == 0 {
			continue
		}
		for _, n := range g.inner.lengths {
			if n > len(text)-i {
				break
			}
			best = firstOf(g.inner.of[text[i:i+n]], text, best)
		}
	}
	return best
}

func firstOf(list []pattern, text string, best pattern) pattern {
	for i := range list {
		if list[i].place >= best.place {
			break
		}
		if list[i].matches(text) {
			return list[i]
		}
	}
	return best
}

// matches reports whether a text has the inner texts one after another. To take each where it
// is found first leaves the most room for the next, so there is no way back to try.
func (p *pattern) matches(text string) bool {
	for _, t := range p.inner {
		i := strings.Index(text, t)
		if i < 0 {
			return false
		}
		text = text[i+len(t):]
	}
	return true
}
