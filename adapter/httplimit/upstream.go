package httplimit

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// What upstreams say about their limits. Times are bounded by maxMaxFollow, and fractions of a
// second are rounded up.

// maxMaxFollow is the largest MaxFollow.
const maxMaxFollow = 24 * time.Hour

// retryAfter returns what Retry-After asks for; of several values the longest. What is
// malformed says nothing.
func retryAfter(h http.Header, now time.Duration) (wait time.Duration, ok bool) {
	return longest(h, fieldRetryAfter, now, math.MaxInt64)
}

// longest returns the longest time that the values of a field say. Numbers from epoch on are
// seconds since 1970, or milliseconds if they are as large as only these are.
func longest(h http.Header, field string, now time.Duration, epoch float64) (wait time.Duration, ok bool) {
	note := func(d time.Duration, valid bool) {
		if valid {
			wait, ok = max(wait, min(d, maxMaxFollow)), true
		}
	}
	for _, line := range h[field] {
		line = trimOWS(line)
		if until, err := http.ParseTime(line); err == nil { // it has a comma
			note(max(until.Sub(dateOf(h, now)), 0), true)
			continue
		}
		for text := range strings.SplitSeq(line, ",") {
			s, valid := seconds(trimOWS(text))
			if valid && s >= epoch {
				if s >= 100*epoch {
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
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		return date
	}
	return time.Unix(0, int64(now))
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
	for _, prefix := range [...]string{"Ratelimit-", "X-Ratelimit-", "X-Rate-Limit-"} {
		if left, ok = fewest(h[prefix+"Remaining"]); ok {
			const sinceEpoch = 1e9 // as seconds they are 31 years, as a date 2001
			window, _ = longest(h, prefix+"Reset", now, sinceEpoch)
			return left, window, ok
		}
	}
	return 0, 0, false
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

// fewest returns the smallest of the numbers that lines hold, rounded down.
func fewest(lines []string) (left int64, ok bool) {
	for _, line := range lines {
		for text := range strings.SplitSeq(line, ",") {
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
