package resp

import (
	"bufio"
	"net"
	"testing"
	"time"
)

// over returns a client over a connection that there is.
func over(t testing.TB, conn net.Conn) *client {
	t.Helper()
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &client{t, conn, bufio.NewReader(conn)}
}
