package resp

import (
	"strings"
	"testing"
)

// Fault 98: a transaction is answered as Redis does with redis-cell, and takes its units once.
func TestTransactions(t *testing.T) {
	s, addr := listen(t, Options{Rules: ruleset(t, "rules: {api: {algorithm: token-bucket, limit: 60, per: 1h, burst: 3}}")})
	c := connect(t, addr)
	queue := func(commands ...string) {
		t.Helper()
		c.want("MULTI", "OK")
		for _, command := range commands {
			c.want(command, "QUEUED")
		}
	}
	left := func(want int64) {
		t.Helper()
		c.want("CL.THROTTLE k 9 1 1000 0", ints(0, 10, want, -1, 1000*(10-want)))
	}
	queue("CL.THROTTLE k 9 1 1000", "CL.THROTTLE k 9 1 1000 2", "HL.TAKE api u", "HL.PEEK api u", "PING")
	c.want("EXEC", []any{ints(0, 10, 9, -1, 1000), ints(0, 10, 7, -1, 3000), ints(0, 3, 2, -1, 60), ints(0, 3, 2, -1, 60), "PONG"})
	left(7)
	// What fails when it is run is an error in its place, and the others are run.
	queue("CL.THROTTLE k 9 1 1000", "CL.THROTTLE k x 1 1", "CL.THROTTLE k 9 1 1000")
	list := c.do("EXEC").([]any)
	c.wantError(list[1], "max_burst")
	left(5)
	queue("CL.THROTTLE k 9 1 1000", "HL.TAKE api u")
	c.want("DISCARD", "OK")
	queue("CL.THROTTLE k 9 1 1000")
	c.wantError(c.do("CL.THROTTLE k"), "arguments") // cannot be queued
	c.want("CL.THROTTLE k 9 1 1000", "QUEUED")
	c.wantError(c.do("EXEC"), "EXECABORT")
	c.wantError(c.do("EXEC"), "EXEC without MULTI")
	queue("CL.THROTTLE k 9 1 1000")
	c.want("RESET", "RESET")
	queue("CL.THROTTLE k 9 1 1000")
	c.raw(encode("QUIT"))
	c.reply()
	c = connect(t, addr)
	queue("CL.THROTTLE k 9 1 1000")
	c.Close() // without EXEC
	c = connect(t, addr)
	left(5)
	queue()
	c.want("EXEC", []any{})
	c.wantError(c.do("WATCH k"), "not supported")
	c.want("UNWATCH", "OK")
	if st := s.Stats(); st.Errors != 5 || st.Panics != 0 || st.Commands < st.Errors {
		t.Errorf("%+v", st)
	}
}

// Fault 98: what a client queues is bounded, and nothing of what is too much is taken.
func TestTransactionsAreBounded(t *testing.T) {
	s, addr := listen(t, Options{})
	c := connect(t, addr)
	take := encode("CL.THROTTLE", "k", "9999", "1", "1000")
	for _, n := range []int{maxQueue / len(take), maxQueue/len(take) + 1} {
		go func() { _, _ = c.Write([]byte(encode("MULTI") + strings.Repeat(take, n) + encode("EXEC"))) }()
		c.reply()
		errs := 0
		for range n {
			if _, failed := c.reply().(error); failed {
				errs++
			}
		}
		reply := c.reply()
		if n*len(take) <= maxQueue {
			if list, ok := reply.([]any); errs != 0 || !ok || len(list) != n {
				t.Errorf("%d commands that fit: %d errors, %.100v", n, errs, reply)
			}
			continue
		}
		if errs != 1 {
			t.Errorf("%d commands: %d errors, want one", n, errs)
		}
		c.wantError(reply, "EXECABORT")
	}
	used := int64(maxQueue / len(take))
	if got := c.do("CL.THROTTLE k 9999 1 1000 0").([]any)[2]; got != 10_000-used {
		t.Errorf("%v are left, want %d", got, 10_000-used)
	}
	// Words of a line are longer when they are queued.
	c.want("MULTI", "OK")
	c.raw("ECHO '" + strings.Repeat("x", maxCommand-9) + "'\n")
	if got := c.reply(); got != "QUEUED" {
		t.Fatal(got)
	}
	if list := c.do("EXEC").([]any); len(list) != 1 || len(list[0].(string)) != maxCommand-9 {
		t.Errorf("%.100v", list)
	}
	if st := s.Stats(); st.Panics != 0 {
		t.Errorf("%+v", st)
	}
}
