package rules

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// decoder reads fields and notes what is wrong with them.
type decoder struct{ *collector }

// mapping reports whether n is a mapping of fields; if not, that is a problem.
func (d decoder) mapping(n *node, path string) bool {
	if n.kind == mapping {
		return true
	}
	d.add(n.place, path, "must be a mapping of fields, not %v", n.kind)
	return false
}

// list reports whether n is a list; if not, that is a problem.
func (d decoder) list(n *node, path string) bool {
	if n.kind == list {
		return true
	}
	d.add(n.place, path, "must be a list, not %v", n.kind)
	return false
}

// known checks that a mapping has only these fields, and each of them once.
func (d decoder) known(n *node, path string, names ...string) {
	d.unique(n, path)
	for _, f := range n.fields {
		switch {
		case slices.Contains(names, f.name):
		case d.full():
			d.skipped++
		default:
			d.add(f.place, join(path, f.name), "unknown field%s; the fields here are %s", meant(f.name, names), strings.Join(names, ", "))
		}
	}
}

// unique checks that a mapping has each field once.
func (d decoder) unique(n *node, path string) {
	lines := map[string]int{}
	for _, f := range n.fields {
		if line, twice := lines[f.name]; twice {
			d.add(f.place, join(path, f.name), "this was given before, in line %d", line)
			continue
		}
		lines[f.name] = f.line
	}
}

// text reads a value as text. A number or a word is taken as it is written.
func (d decoder) text(n *node, path string) (value string, ok bool) {
	switch {
	case n.kind != scalar:
		d.add(n.place, path, "must be text, not %v", n.kind)
	case n.text == "":
		d.add(n.place, path, "must not be empty")
	default:
		return n.text, true
	}
	return "", false
}

// boolean reads true or false.
func (d decoder) boolean(n *node, path string) (value, ok bool) {
	if n.kind == scalar && !n.quoted {
		switch n.text {
		case "true", "false":
			return n.text == "true", true
		}
	}
	d.add(n.place, path, "must be true or false%s", is(n))
	return false, false
}

var (
	wholeNumber = regexp.MustCompile(`^-?[0-9]+$`)
	otherNumber = regexp.MustCompile(`^[-+]?(\.inf|\.Inf|\.INF|\.nan|\.NaN|\.NAN|[0-9][0-9_.xXoOa-fA-F]*([eE][-+]?[0-9]+)?)$`)
)

// integer reads a whole number from least to most.
func (d decoder) integer(n *node, path string, least, most int64) (value int64, ok bool) {
	switch {
	case n.kind != scalar:
		d.add(n.place, path, "must be a whole number, not %v", n.kind)
		return 0, false
	case n.quoted:
		d.add(n.place, path, "must be a whole number, not text: write it without quotes")
		return 0, false
	case !wholeNumber.MatchString(n.text):
		how := ""
		if otherNumber.MatchString(n.text) {
			how = ", written in digits alone, such as 1000"
		}
		d.add(n.place, path, "must be a whole number%s%s", how, is(n))
		return 0, false
	}
	value, err := strconv.ParseInt(n.text, 10, 64)
	if err != nil || value < least || value > most {
		d.add(n.place, path, "must be %d to %d, is %s", least, most, clip(n.text))
		return 0, false
	}
	return value, true
}

// duration reads a duration as Go writes it.
func (d decoder) duration(n *node, path string, least, most time.Duration) (value time.Duration, ok bool) {
	if n.kind != scalar {
		d.add(n.place, path, "must be a duration such as 1s, 1m or 24h, not %v", n.kind)
		return 0, false
	}
	value, err := time.ParseDuration(n.text)
	switch {
	case n.text != "0" && wholeNumber.MatchString(n.text):
		d.add(n.place, path, "%s has no unit: write a duration such as %ss, 1m or 24h", clip(n.text), clip(strings.TrimLeft(n.text, "-")))
	case calendarUnits[strings.TrimSuffix(n.text, "s")] != 0:
		d.add(n.place, path, "must be a duration such as 1s, 1m or 24h%s: a %[2]s of the calendar is algorithm: calendar, per: %[2]s", is(n), strings.TrimSuffix(n.text, "s"))
	case err != nil && strings.ContainsAny(n.text, "dwy"):
		d.add(n.place, path, "must be a duration such as 1s, 1m or 24h%s: days and longer are written in hours", is(n))
	case err != nil:
		d.add(n.place, path, "must be a duration such as 1s, 1m or 24h%s", is(n))
	case value <= 0:
		d.add(n.place, path, "must be longer than 0%s", is(n))
	case value < least || value > most:
		d.add(n.place, path, "must be %v to %v%s", least, most, is(n))
	default:
		return value, true
	}
	return 0, false
}

// is says what a value is, for the end of a message.
func is(n *node) string {
	if n.kind != scalar {
		return ", not " + n.kind.String()
	}
	if n.quoted {
		return ", is " + strconv.Quote(clip(n.text))
	}
	return ", is " + strings.ReplaceAll(clip(n.text), "\n", " ")
}

// synonyms are fields by what they are called elsewhere.
var synonyms = map[string]string{"timezone": "zone", "time_zone": "zone", "tz": "zone", "period": "per", "window": "per", "interval": "per"}

// meant returns a question for the name that was probably meant.
func meant(name string, names []string) string {
	const most = 200 // names that are compared
	names = names[:min(len(names), most)]
	if word := synonyms[name]; slices.Contains(names, word) {
		return ", did you mean " + word + "?"
	}
	best, at := "", 3 // more than two typing errors are another word
	for _, n := range names {
		if len(name) > 2 && strings.HasPrefix(n, name) {
			return ", did you mean " + n + "?"
		}
		if d := distance(name, n, at); d < at && d < len(n) {
			best, at = n, d
		}
	}
	if best == "" {
		return ""
	}
	return ", did you mean " + best + "?"
}

// distance returns how many letters must be inserted, removed or replaced to make b of a
// (Levenshtein), or most if it is not fewer.
func distance(a, b string, most int) int {
	if len(a) > 64 || len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		left := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			left, row[j+1] = row[j+1], min(left+cost, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], most)
}
