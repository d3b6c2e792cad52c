package limit

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// maxParsed bounds the text that Parse reads.
const maxParsed = 1024

// Parse reads limits as people write them, such as "100/minute" or "10/s, 500/m, 10000/day": units,
// a slash and a period. Each is a sliding window; with a burst, as in "10/s burst 20", it is a token
// bucket that holds so many units and gets back the others in each period.
//
// Periods are s, m, h, d and w, their words (sec, second, min, minute, hour, day, week, also in the
// plural), each with a number before it if there are several (10s, 5 minutes), or durations as Go
// writes them (1h30m, 100ms). A day has 24 hours; for those of the calendar see [Quota].
//
// One limit becomes a rule of that name. Several are combined, see [Combine], under names with their
// periods: api/1s, api/1m and api/1d. So the number of units can be changed while the rule is in
// use. A bucket among several has its rate in its name, api/10/1s, because another rate counts
// differently.
func Parse(name, text string) (*Rule, error) {
	if len(text) > maxParsed {
		return nil, fmt.Errorf("limit: rule %q: the text has %d bytes, must be at most %d", clipped(name), len(text), maxParsed)
	}
	var limits []written
	var errs []error
	for part := range strings.SplitSeq(text, ",") {
		w, err := read(strings.ToLower(strings.TrimSpace(part)))
		if err != nil {
			errs = append(errs, fmt.Errorf("limit: rule %q: %w", clipped(name), err))
		}
		limits = append(limits, w)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(limits) == 1 {
		return limits[0].rule(name)
	}
	rules := make([]*Rule, len(limits))
	for i, w := range limits {
		var err error
		if rules[i], err = w.rule(name + "/" + w.suffix()); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return Combine(name, rules...)
}

// written is one limit of a text.
type written struct {
	units, burst int64
	per          time.Duration
	isBucket     bool
}

// The patterns are compiled when they are first used, because most programs do not parse limits.
var (
	limitText = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([0-9]+) ?(?:/|per) ?([0-9a-zA-Zµ. ]+?)(?: burst ([0-9]+))?$`)
	})
	periodText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9]*) ?([a-z]+)$`) })
)

const day = 24 * time.Hour

var periodWords = map[string]time.Duration{
	"s": time.Second, "sec": time.Second, "second": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute,
	"h": time.Hour, "hour": time.Hour,
	"d": day, "day": day, "w": 7 * day, "week": 7 * day,
}

// read reads one limit.
func read(text string) (w written, err error) {
	m := limitText().FindStringSubmatch(text)
	if m == nil {
		return w, fmt.Errorf("%s is no limit such as 10/s, 500/minute or 10/s burst 20", quoted(text))
	}
	if w.units, err = strconv.ParseInt(m[1], 10, 64); err == nil && m[3] != "" {
		w.isBucket = true
		w.burst, err = strconv.ParseInt(m[3], 10, 64)
	}
	if err != nil {
		return w, fmt.Errorf("%s has a number above %d", quoted(text), int64(arith.MaxUnits))
	}
	if w.per, err = readPeriod(m[2]); err != nil {
		return w, fmt.Errorf("%s: %w", quoted(text), err)
	}
	return w, nil
}

// readPeriod reads a period.
func readPeriod(text string) (time.Duration, error) {
	hint := ""
	if m := periodText().FindStringSubmatch(text); m != nil {
		word := m[2]
		if len(word) > 2 {
			word = strings.TrimSuffix(word, "s")
		}
		if unit := periodWords[word]; unit > 0 {
			n := int64(1)
			if m[1] != "" {
				var err error
				if n, err = strconv.ParseInt(m[1], 10, 64); err != nil || n > int64(arith.MaxWindow/unit) {
					return 0, fmt.Errorf("a period is at most %v", arith.MaxWindow)
				}
			}
			return time.Duration(n) * unit, nil
		}
		if word == "month" {
			hint = ": a quota by the calendar is a rule of its own"
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%s is no period such as s, minute, 10s or 1h30m%s", quoted(text), hint)
	}
	return d, nil
}

// rule returns the rule of the limit.
func (w written) rule(name string) (*Rule, error) {
	if w.isBucket {
		return TokenBucket(name, w.units, w.per, w.burst)
	}
	return SlidingWindow(name, w.units, w.per)
}

// suffix is what tells the names of several limits apart.
func (w written) suffix() string {
	text := w.per.String()
	for _, unit := range []struct {
		d    time.Duration
		word string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if w.per > 0 && w.per%unit.d == 0 {
			text = strconv.FormatInt(int64(w.per/unit.d), 10) + unit.word
			break
		}
	}
	if w.isBucket {
		text = strconv.FormatInt(w.units, 10) + "/" + text
	}
	return text
}

// clipped bounds a name in a message.
func clipped(name string) string {
	if len(name) > arith.MaxNameBytes {
		return name[:32] + "…"
	}
	return name
}

func quoted(text string) string {
	if len(text) > 40 {
		text = text[:40] + "…"
	}
	return strconv.Quote(text)
}
