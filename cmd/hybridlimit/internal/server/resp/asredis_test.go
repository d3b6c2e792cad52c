package resp

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// samples are streams that Redis answers in a way that is easy to get wrong.
var samples = []string{
	encode("PING"), "PING\r\n", "ECHO \"a b\"\r\n", "*0\r\n*-7\r\n\r\nPING\n", "*1\r\n$4\r\nPING\r\nPING\r\n", "\n\n", "a 'b\n", "\techo\t'a'\r\n",
	"*1\n$4\nPING\n", "*1\r\n$4\r\nPINGxxPING\r\n", "*2\r\n$4\r\nECHO\r\n$-1\r\n", "*1\r\n\r\n", "*1 \r\n", "*+1\r\n", "*01\r\n", "PING\x00\r\nPING\r\n",
	"MULTI\r\nECHO a\r\nPING\r\nEXEC\r\nPING\r\n", "MULTI\r\nNOSUCH\r\nPING\r\nEXEC\r\nEXEC\r\n", "MULTI\r\nECHO\r\nDISCARD\r\nDISCARD\r\n",
	"MULTI\r\nMULTI\r\nWATCH x\r\nEXEC\r\n", "MULTI\r\nPING\r\nEXEC x\r\nEXEC\r\n", "EXEC x\r\n", "MULTI\r\nUNWATCH\r\nSELECT 0\r\nSELECT x\r\nEXEC\r\nMULTI\r\nEXEC x\r\nEXEC\r\n", "MULTI\r\nPING\r\nRESET\r\nEXEC\r\n",
	"MULTI\r\nPING\r\nQUIT\r\nEXEC\r\n", "CLIENT NOSUCH\r\nMULTI\r\nCLIENT NOSUCH\r\nPING\r\nEXEC\r\n", "MULTI\r\nCOMMAND NOSUCH\r\nEXEC\r\n", "MULTI\r\n*0\r\n\r\nEXEC\r\n", "MULTI\r\nHELLO 3\r\nHELLO 9\r\nEXEC\r\nPING\r\n", "UNWATCH\r\nUNWATCH x\r\n", "AUTH default wrong\r\nPING\r\nMULTI\r\nAUTH default wrong\r\nPING\r\nEXEC\r\n", "AUTH nobody secret\r\nPING\r\n",
	"HELLO x\r\nHELLO 99999999999999999999\r\nHELLO 4\r\n", "MULTI\r\nAUTH a b c\r\nPING a b\r\nEXEC\r\n", "MULTI\r\nCLIENT GETNAME x\r\nEXEC\r\n", "CLIENT ID x\r\nCOMMAND COUNT x\r\n",
	"MULTI\r\n*1\r\n$-1\r\nEXEC\r\n", "QUIT x\r\nPING\r\n", "echo \"\\x41\\x4g\\n\\q\"\n", "echo 'it\\'s' a\"b\"\n", "echo \"a\"b\n", "\v\fping\n",
}

// asRedis answers streams, by a redis-server and by a server of ours.
type asRedis struct {
	testing.TB
	theirs, ours string // addresses
	// silent is for a server that does not answer a wrong password behind another command of a
	// pipeline, as Redis 8.0 and Valkey 8.1 do.
	silent bool
}

// both returns servers with a password, if it is not empty.
func both(t testing.TB, password string) asRedis {
	t.Helper()
	// Only what we know, too: a command that is not allowed is an error as an unknown one is.
	rights := []string{"--user", "default", "on", "nopass", "~*", "&*", "-@all"}
	if password != "" {
		rights[3] = ">" + password
	}
	for _, name := range []string{"ping", "echo", "multi", "exec", "discard", "watch", "unwatch", "select", "quit", "reset", "auth"} {
		rights = append(rights, "+"+name)
	}
	redis := redistest.Start(t, "--databases", "1")
	if info, err := redis.Info("server"); err != nil {
		t.Fatal(err)
	} else if info["valkey_version"] != "" {
		t.Skip("Valkey answers lines of blanks, quotes and wrong ends of bulks otherwise than Redis")
	}
	redis.Do(append([]string{"ACL", "SETUSER", "default", "resetpass"}, rights[2:]...)...)
	_, addr := listen(t, Options{Password: password})
	r := asRedis{TB: t, theirs: redis.Addr(), ours: addr}
	r.silent = !strings.Contains(r.answer(r.theirs, "PING\r\nAUTH nobody wrong\r\n"), "WRONGPASS")
	return r
}

// answer sends a stream, and returns all that comes until the server ends the connection. Of
// errors it is the first word, of those of the protocol a few more.
func (r asRedis) answer(addr, stream string) string {
	r.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		r.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, stream); err != nil {
		r.Fatal(err)
	}
	_ = c.(*net.TCPConn).CloseWrite()
	text, err := io.ReadAll(c)
	if err, timeout := err.(net.Error); timeout && err.Timeout() {
		r.Fatalf("%q: no end after %q", stream, text)
	}
	text = protocolError.ReplaceAll(text, []byte("-PROTOCOL $1\r\n"))
	text = bytes.ReplaceAll(text, []byte("-NOPERM "), []byte("-ERR "))
	text = greeting.ReplaceAll(text, []byte("version and id"))
	text = modules.ReplaceAll(text, []byte("modules\r\n*0\r\n"))
	return string(otherError.ReplaceAll(text, []byte("-$1\r\n")))
}

var (
	protocolError = regexp.MustCompile(`(?m)^-ERR Protocol error: (unbalanced|expected|unauthenticated \w+|invalid \w+).*\r\n`)
	greeting      = regexp.MustCompile(`(?s)version\r\n.*?id\r\n:\d+`)
	modules       = regexp.MustCompile(`(?s)modules\r\n\*1\r\n%4\r\n.*?args\r\n\*0\r\n`) // Redis 8.0 has one
	wrongBehind   = regexp.MustCompile(`(?s).\nAUTH (default wrong|nobody)`)
	otherError    = regexp.MustCompile(`(?m)^-([A-Z]+) .*\r\n`)
)

// compare reports streams that are answered differently.
func (r asRedis) compare(stream string) {
	r.Helper()
	if r.silent && wrongBehind.MatchString(stream) {
		return
	}
	ours, theirs := r.answer(r.ours, stream), r.answer(r.theirs, stream)
	if ours != theirs {
		r.Errorf("%q:\nours   %q\ntheirs %q", stream, ours, theirs)
	}
}

// otherwise is streams that are answered otherwise on purpose: our bounds are lower, and of
// these commands we say more, or less.
var otherwise = regexp.MustCompile(`(?is)[*$]\d{3}|(^|[^n])watch|post|host:|hello|command|client|(\s.*){128}`)

// Fault 98: Redis clients are answered as Redis does, whatever bytes they send.
func TestAnswersAsRedis(t *testing.T) {
	for _, password := range []string{"", "secret"} {
		r := both(t, password)
		for _, stream := range samples {
			r.compare(stream)
			r.compare("AUTH default secret\r\n" + stream)
		}
		rnd := rand.New(rand.NewPCG(1, 2))
		for range 1000 {
			r.compare(randomStream(rnd))
		}
	}
}

// randomStream puts parts of commands together, most of them in a way that makes sense.
func randomStream(rnd *rand.Rand) string {
	parts := []string{
		"*1\r\n", "*2\r\n", "*0\r\n", "*-1\r\n", "$4\r\n", "$0\r\n\r\n", "$-1\r\n", "\r\n", "\n", "\r", " ", "\t", "'", "\"", "\\", "\\x41", "\x00", "*", "$", "1", "-",
		"PING", "ECHO", "ping\r\n", "echo a\r\n", "MULTI\r\n", "EXEC\r\n", "DISCARD\r\n", "UNWATCH\r\n", "NOSUCH\r\n", "QUIT\r\n", "RESET\r\n", "SELECT 0\r\n",
		"AUTH secret\r\n", "AUTH default secret\r\n", encode("PING"), encode("ECHO", "a\r\nb"), encode("MULTI"), encode("EXEC"), encode("ECHO"), "*11\r\n", "$20000\r\n",
	}
	var stream strings.Builder
	for range 1 + rnd.IntN(12) {
		part := parts[rnd.IntN(len(parts))]
		if rnd.IntN(10) == 0 {
			part = part[rnd.IntN(len(part)):]
		}
		stream.WriteString(part)
	}
	return stream.String()
}

// Fault 98: the same for bytes that are in no list.
func FuzzAsRedis(f *testing.F) {
	r := both(f, "")
	for _, stream := range samples {
		f.Add(stream)
	}
	f.Fuzz(func(t *testing.T, stream string) {
		if !otherwise.MatchString(stream) {
			r.TB = t
			r.compare(stream)
		}
	})
}
