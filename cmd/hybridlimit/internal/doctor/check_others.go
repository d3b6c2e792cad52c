package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/screen"
)

const (
	// manyScripts is how many a Redis has that is sent ever new ones; Redis 7.4 and
	// later keeps 500 that came by EVAL.
	manyScripts = 500
	// clientShare is how many of maxclients may be connected, in per cent.
	clientShare = 80
	// leastIdle is how long a connection of a pool should be allowed to idle.
	leastIdle = 60
	// leastScript is how long a script should be allowed to take, in ms: batches of a
	// limiter take 10 ms and more on a busy machine.
	leastScript = 100
	// leastBuffer is what an answer to a large batch may need.
	leastBuffer = 1 << 20
	// leastNoticeBuffer is what a subscriber should be allowed that does not read for a moment:
	// a message has up to 40 KB, and there may be hundreds a second.
	leastNoticeBuffer = 1 << 20
)

func checkScriptCache(f *facts, _ Options) answer {
	n, ok := f.number("number_of_cached_scripts")
	switch {
	case !ok:
		return f.noInfo()
	case n <= manyScripts:
		return fine
	}
	return wrong(fmt.Sprintf("%s scripts are in its cache.", screen.Count(n)), "Have the other program pass its values as arguments of one script.", "SCRIPT FLUSH ASYNC empties the cache; limiters send their scripts again.")
}

func checkScriptLimit(f *facts, _ Options) answer {
	name := "busy-reply-threshold" // since Redis 7.0
	ms, ok := f.settingNumber(name)
	if !ok {
		name = "lua-time-limit"
		ms, ok = f.settingNumber(name)
	}
	fix := "CONFIG SET " + name + " 5000"
	switch {
	case !ok:
		return f.noConfig()
	case ms <= 0:
		return wrong(fmt.Sprintf("%s is %d: never.", name, ms), fix)
	case ms < leastScript:
		return wrong(fmt.Sprintf("%s is %d ms.", name, ms), fix).because("Redis answers everybody with BUSY while a script takes longer than that, as a large batch may on a busy machine.")
	}
	return fine
}

func checkClients(f *facts, _ Options) answer {
	now, ok := f.number("connected_clients")
	most, ok2 := f.settingNumber("maxclients")
	if !ok2 {
		most, ok2 = f.number("maxclients")
	}
	switch {
	case len(f.failed("maxclients")) > 0:
		return wrong("maxclients is reached.", "CONFIG SET maxclients 10000").as(Error)
	case !ok:
		return f.noInfo()
	case !ok2:
		return f.noConfig()
	case now*100 < most*clientShare:
		return fine
	}
	return wrong(fmt.Sprintf("%s of %s connections are taken.", screen.Count(now), screen.Count(most)),
		fmt.Sprintf("CONFIG SET maxclients %d", max(4*most, 10_000)), "CLIENT LIST shows who holds them.")
}

func checkTimeout(f *facts, _ Options) answer {
	seconds, ok := f.settingNumber("timeout")
	switch {
	case !ok:
		return f.noConfig()
	case seconds == 0 || seconds >= leastIdle:
		return fine
	}
	return wrong(fmt.Sprintf("timeout is %d s.", seconds), "CONFIG SET timeout 0")
}

func checkBuffer(f *facts, _ Options) answer {
	text, ok := f.setting("client-output-buffer-limit")
	if !ok {
		return f.noConfig()
	}
	hard, soft, ok := bufferLimit(text, "normal")
	if low := min(hard, soft); ok && low < leastBuffer {
		return wrong(fmt.Sprintf("client-output-buffer-limit of normal clients is %s.", screen.Bytes(low)), `CONFIG SET client-output-buffer-limit "normal 0 0 0"`)
	}
	most, _, found := bufferLimit(text, "pubsub")
	switch {
	case found && most < leastNoticeBuffer:
		return wrong(fmt.Sprintf("client-output-buffer-limit of subscribers is %s.", screen.Bytes(most)), `CONFIG SET client-output-buffer-limit "pubsub 33554432 8388608 60"`).because(
			"Redis closes the connection of a subscriber that does not read for a moment: a node misses the notices until it has subscribed again.")
	case !ok:
		return cannotTell("client-output-buffer-limit is in another form")
	}
	return fine
}

// bufferLimit returns the limits of a class of clients, in bytes.
func bufferLimit(text, class string) (hard, soft int64, ok bool) {
	words := strings.Fields(text)
	for i := 0; i+3 < len(words); i += 4 {
		hard, err := strconv.ParseInt(words[i+1], 10, 64)
		soft, err2 := strconv.ParseInt(words[i+2], 10, 64)
		if words[i] == class && err == nil && err2 == nil {
			return orMost(hard), orMost(soft), true
		}
	}
	return 0, 0, false
}

// orMost returns n, or the largest number for 0, which stands for no limit.
func orMost(n int64) int64 {
	if n == 0 {
		return 1<<63 - 1
	}
	return n
}

func checkOpen(f *facts, o Options) answer {
	switch {
	case o.Password && !f.open:
		return fine
	case o.Local && f.config["bind"] == "":
		return fine // who is on the machine already, or nothing is known
	case f.config["port"] == "0" && f.config["tls-auth-clients"] == "yes":
		return fine // it needs a certificate
	}
	mode, ok := f.setting("protected-mode")
	bind, ok2 := f.setting("bind")
	switch {
	case !ok || !ok2:
		return f.noConfig()
	case mode != "no" || onlyLocal(bind):
		return fine
	}
	return wrong("It needs no password, protected-mode is no, and it listens on "+listens(bind)+".", "ACL SETUSER default resetpass >a-long-password", "CONFIG SET protected-mode yes")
}

func listens(bind string) string {
	if strings.TrimSpace(bind) == "" {
		return "all addresses"
	}
	return bind
}

// onlyLocal reports whether all addresses are of the machine itself.
func onlyLocal(bind string) bool {
	words := strings.Fields(bind)
	for _, w := range words {
		w = strings.TrimPrefix(w, "-") // if there is such an address
		if w != "::1" && w != "localhost" && !strings.HasPrefix(w, "127.") {
			return false
		}
	}
	return len(words) > 0
}

func checkPlaintext(_ *facts, o Options) answer {
	if o.Local || o.Encrypted {
		return fine
	}
	return wrong("The connection is not encrypted.", "Use rediss:// and TLSConfig if the network is not trusted (redis.conf: tls-port).")
}

// Defaults of [Options].
const (
	// DefaultSlowTrip is a quarter of the limiters' default CommandTimeout.
	DefaultSlowTrip = 62500 * time.Microsecond
	// DefaultSlowCommand is a good part of it.
	DefaultSlowCommand = 100 * time.Millisecond
)
