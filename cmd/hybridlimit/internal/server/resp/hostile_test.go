package resp

import (
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/limittest"
)

// No error that a client gets shows more of what it has sent than some bytes, nor anything that
// cannot be printed: such errors stand in logs of the clients, beside those of others.
func TestErrorsOfHostileClients(t *testing.T) {
	const most = 500 // bytes of an error: the list of the commands is one
	_, addr := listen(t, Options{})
	c := connect(t, addr)
	text := limittest.HostileKey()[:60_000] // a command of more bytes ends the connection
	for _, args := range [][]string{
		{text}, {"CL.THROTTLE", "k", text, "1", "1"}, {"HL.TAKE", text, "k"}, {"CLIENT", text}, {"COMMAND", text}, {"HELLO", "3", text}, {"HELLO", text}, {"SELECT", text},
	} {
		err, ok := c.send(args...).(error)
		if !ok {
			t.Errorf("%.40q is no error", args)
			continue
		}
		limittest.CheckError(t, args[0][:min(len(args[0]), 20)], err, most)
	}
}
