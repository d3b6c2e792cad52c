package redisstore

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// width returns what the scripts get as the width of a window: of a calendar its periods at present, see
// lua/lib_window.lua.
func (s *Store) width(rule *limit.Rule) any {
	if arith.Of(rule).Calendar == nil {
		return widthUS(rule)
	}
	return string(s.appendCalendar(nil, rule))
}

// appendCalendar appends the width of a calendar, and the previous period, the present and the next one by
// what is known of Redis' clock.
func (s *Store) appendCalendar(b []byte, rule *limit.Rule) []byte {
	is := arith.Of(rule)
	id := is.Index(int64(clock.System{}.Now())+s.ahead.Load()) - 1
	b = strconv.AppendInt(b, widthUS(rule), 10)
	return appendNumbers(b, id, is.Ends(id-1)/1000, is.Ends(id)/1000, is.Ends(id+1)/1000, is.Ends(id+2)/1000, is.Ends(id+3)/1000)
}

// otherPeriod reports whether a call has failed because Redis' clock is in none of the periods that were
// sent. Then it says what the clock shows, and the next call has the right ones.
func (s *Store) otherPeriod(err error) bool {
	if err == nil {
		return false
	}
	var key *limit.KeyError
	if !errors.As(err, &key) {
		return false
	}
	digits, ok := strings.CutPrefix(key.Reason, "its clock shows ")
	digits, _, _ = strings.Cut(digits, " ")
	us, wrong := strconv.ParseInt(digits, 10, 64)
	if !ok || wrong != nil || us > maxExact {
		return false
	}
	s.follow(time.Duration(us) * time.Microsecond)
	return true
}

// follow notes what Redis' clock shows.
func (s *Store) follow(now time.Duration) { s.ahead.Store(int64(now - clock.System{}.Now())) }
