package httplimit

import (
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// What upstreams say about their limits. Times are bounded by maxMaxFollow, and fractions of a
// second are rounded up.

// maxMaxFollow is the largest MaxFollow.
const maxMaxFollow = 24 * time.Hour

// retryAfter returns what an upstream asks for; of several values the longest. The fields in
// milliseconds count before Retry-After, which rounds them to seconds. What is malformed says
// nothing.
func retryAfter(h http.Header, now time.Duration) (wait time.Duration, ok bool) {
	for _, field := range [...]string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if wait, ok = longestMillis(h[field]); ok && wait > 0 {
			return wait, ok
		}
	}
	return longest(h, fieldRetryAfter, now)
}

// longestMillis returns the largest of numbers of milliseconds.
func longestMillis(lines []string) (wait time.Duration, ok bool) {
	for _, line := range lines {
		for text := range strings.SplitSeq(line, ",") {
			if ms, valid := seconds(trimOWS(text)); valid { // the number alone counts
				ms = min(ms, float64(maxMaxFollow/time.Millisecond))
				wait, ok = max(wait, time.Duration(math.Ceil(ms))*time.Millisecond), true
			}
		}
	}
	return wait, ok
}

// sinceEpoch is from which number on seconds are a date: as seconds from now they are 31 years, as a date
// they are in 2001.
const sinceEpoch = 1e9

// longest returns the longest time that the values of a field say. Numbers from sinceEpoch on are
// seconds since 1970, or milliseconds if they are as large as only these are.
func longest(h http.Header, field string, now time.Duration) (wait time.Duration, ok bool) {
	note := func(d time.Duration, valid bool) {
		if valid {
			wait, ok = max(wait, min(d, maxMaxFollow)), true
		}
	}
	for _, line := range h[field] {
		line = trimOWS(line)
		if until, is := parseTime(line); is { // it may have a comma
			note(wholeSeconds(until.Sub(dateOf(h, now)).Seconds()), true)
			continue
		}
		for text := range strings.SplitSeq(line, ",") {
			s, valid := seconds(trimOWS(text))
			if valid && s >= sinceEpoch {
				if s >= 100*sinceEpoch {
					s /= 1000
				}
				s -= float64(dateOf(h, now).UnixMilli()) / 1000
			}
			note(wholeSeconds(s), valid)
		}
	}
	return wait, ok
}

// dateOf is the time of a response by the upstream's own clock, so that it does not matter
// whether ours is right.
func dateOf(h http.Header, now time.Duration) time.Time {
	if date, ok := parseTime(trimOWS(h.Get("Date"))); ok {
		return date
	}
	return time.Unix(0, int64(now))
}

// dateLayouts are the forms of a time, besides those of RFC 9110, that upstreams send: with
// another name of the zone than GMT or with its offset, of RFC 3339, without seconds, and as
// JavaScript prints it.
var dateLayouts = [...]string{
	"Mon, 2 Jan 2006 15:04:05 MST", "Mon, 2 Jan 2006 15:04:05 -0700",
	time.RFC3339, "2006-01-02T15:04Z07:00", "Mon Jan 2 2006 15:04:05 GMT-0700",
}

// parseTime reads a time. One whose zone is not known is none.
func parseTime(text string) (t time.Time, ok bool) {
	if text == "" || isDigit(text[0]) && !strings.Contains(text, "T") {
		return t, false // most values are a number
	}
	if t, err := http.ParseTime(text); err == nil {
		return t, true
	}
	text, _, _ = strings.Cut(text, " (") // behind an offset JavaScript says what people call it
	for _, layout := range dateLayouts {
		t, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		name, offset := t.Zone()
		// time.Parse makes up a zone for an abbreviation that it does not know.
		return t, layout != dateLayouts[0] || offset == 0 && (name == "UTC" || name == "GMT")
	}
	return t, false
}

// seconds reads a number of at least 0, such as 30, 30.5 and 30s, or times such as 1m30s and
// 500ms.
func seconds(text string) (s float64, ok bool) {
	if text == "" || !isDigit(text[0]) {
		return 0, false
	}
	if all(text, func(c byte) bool { return isDigit(c) || c == '.' }) {
		s, err := strconv.ParseFloat(text, 64)
		return s, err == nil || s > 0 // so many digits are infinitely many
	}
	d, err := time.ParseDuration(text)
	return d.Seconds(), err == nil
}

// wholeSeconds rounds up. What has passed is 0.
func wholeSeconds(s float64) time.Duration {
	s = min(max(s, 0), maxMaxFollow.Seconds())
	return time.Duration(math.Ceil(s)) * time.Second
}

// upstreamLeft returns what an upstream says is left, for how long no more than that can be
// used, and whether it says so. A response from a cache says nothing.
func upstreamLeft(h http.Header, now time.Duration) (left int64, window time.Duration, ok bool) {
	if !isFresh(h) {
		return 0, 0, false
	}
	if left, window, ok = structuredLeft(h); ok {
		return left, window, ok
	}
	if old := combined(h[fieldRateLimit]); len(old) > 0 {
		h = old
	}
	for _, f := range &upstreamFields {
		n, is := fewest(h[f.remaining])
		if !is || f.tokens && n > 0 || ok && n > left {
			continue
		}
		w, _ := longest(h, f.reset, now)
		if ok && n == left {
			w = max(w, window)
		}
		left, window, ok = n, w, true
	}
	return left, window, ok
}

// upstreamFields are what upstreams call how much is left and until when. Of tokens it only
// matters that none are left: how many a request takes is not known.
var upstreamFields = [...]struct {
	remaining, reset string
	tokens           bool
}{
	{"Ratelimit-Remaining", "Ratelimit-Reset", false},
	{"X-Ratelimit-Remaining", "X-Ratelimit-Reset", false},
	{"X-Rate-Limit-Remaining", "X-Rate-Limit-Reset", false},
	{"X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests", false},
	{"X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens", true},
	{"X-Ratelimit-Remaining-Requests-Day", "X-Ratelimit-Reset-Requests-Day", false},
	{"X-Ratelimit-Remaining-Tokens-Minute", "X-Ratelimit-Reset-Tokens-Minute", true},
	{"X-Ratelimit-Requests-Remaining", "X-Ratelimit-Requests-Reset", false},
	{"Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset", false},
	{"Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset", true},
	{"Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset", true},
	{"Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset", true},
}

// combined returns the fields of earlier drafts that draft 7 had in one: RateLimit: limit=10,
// remaining=0, reset=5.
func combined(lines []string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		for pair := range strings.SplitSeq(line, ",") {
			switch name, value, _ := strings.Cut(trimOWS(pair), "="); name {
			case "remaining", "reset":
				h.Add("RateLimit-"+name, value)
			}
		}
	}
	return h
}

// grouped is a number with separators of thousands, which is no list: those have spaces.
var grouped = regexp.MustCompile(`^[0-9]{1,3}(,[0-9]{3})+$`)

// fewest returns the smallest of the numbers that lines hold, rounded down. What follows a semicolon
// is about the limit.
func fewest(lines []string) (left int64, ok bool) {
	for _, line := range lines {
		if grouped.MatchString(line) {
			line = strings.ReplaceAll(line, ",", "")
		}
		for text := range strings.SplitSeq(line, ",") {
			text, _, _ = strings.Cut(text, ";")
			if s, valid := seconds(trimOWS(text)); valid && (!ok || int64(min(s, maxInteger)) < left) {
				left, ok = int64(min(s, maxInteger)), true
			}
		}
	}
	return left, ok
}

// structuredLeft reads the fields RateLimit and RateLimit-Policy. Of several policies the one
// counts that allows the least. Policies that do not count requests say nothing.
func structuredLeft(h http.Header) (left int64, window time.Duration, ok bool) {
	items, valid := parseList(strings.Join(h[fieldRateLimit], ", "))
	if !valid {
		return 0, 0, false
	}
	others := otherUnits(h)
	for _, item := range items {
		r, counts := item.integer("r")
		if !counts || r < 0 || others[item.name] {
			continue
		}
		t, _ := item.integer("t")
		w := time.Duration(min(max(t, 0), int64(maxMaxFollow/time.Second))) * time.Second
		if !ok || r < left || r == left && w > window {
			left, window, ok = r, w, true
		}
	}
	return left, window, ok
}

func isFresh(h http.Header) bool {
	age := trimOWS(h.Get("Age"))
	return strings.Trim(age, "0") == ""
}

// otherUnits returns the policies that do not count requests.
func otherUnits(h http.Header) map[string]bool {
	items, valid := parseList(strings.Join(h[fieldPolicy], ", "))
	if !valid {
		return nil
	}
	var names map[string]bool
	for _, item := range items {
		if unit, found := item.text("qu"); found && unit != "requests" && unit != "request" {
			if names == nil {
				names = map[string]bool{}
			}
			names[item.name] = true
		}
	}
	return names
}
