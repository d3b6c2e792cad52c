package resp

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// What libraries send before the first command of the user. None of it may be an error, or
// the library gives up or logs.
func TestGreetingsOfClients(t *testing.T) {
	_, addr := listen(t, Options{})
	for _, g := range []struct{ library, commands string }{
		{"redis-cli", "COMMAND DOCS;COMMAND"},
		{"redis-py", "CLIENT SETINFO LIB-NAME redis-py;CLIENT SETINFO LIB-VER 6.4.0;SELECT 0;PING"},
		{"redis-py with RESP3", "HELLO 3;CLIENT SETNAME app;CLIENT SETINFO LIB-NAME redis-py"},
		{"rueidis", "HELLO 3;CLIENT TRACKING ON OPTIN;CLIENT SETINFO LIB-NAME rueidis;CLIENT SETINFO LIB-VER 1.0.78;PING"},
		{"node-redis", "HELLO 2;CLIENT SETINFO LIB-NAME node-redis;CLIENT SETINFO LIB-VER 5.0.0;PING"},
		{"ioredis", "INFO;CLIENT SETINFO LIB-NAME ioredis;CLIENT SETNAME app;SELECT 0"},
		{"lettuce", "HELLO 3 SETNAME app;CLIENT SETINFO lib-name Lettuce;PING"},
		{"jedis", "CLIENT SETINFO LIB-NAME jedis;ECHO x"},
		{"a pool", "CLIENT ID;CLIENT GETNAME;CLIENT NO-EVICT on;CLIENT NO-TOUCH on;RESET;COMMAND COUNT;COMMAND LIST;INFO server"},
	} {
		c := connect(t, addr)
		for command := range strings.SplitSeq(g.commands, ";") {
			if err, bad := c.do(command).(error); bad {
				t.Errorf("%s: %s: %v", g.library, command, err)
			}
		}
		c.want("CL.THROTTLE "+strings.Fields(g.library)[0]+g.commands[:1]+fmt.Sprint(len(g.commands))+" 1 1 1", ints(0, 2, 1, -1, 1))
	}
}

func TestHello(t *testing.T) {
	_, addr := listen(t, Options{})
	c := connect(t, addr)
	two := []any{"server", "redis", "version", redisVersion, "proto", int64(2), "id", int64(1), "mode", "standalone", "role", "master", "modules", []any{}}
	c.want("HELLO", two)
	c.want("HELLO 2", two)
	c.want("CLIENT GETNAME", nil)
	three := append([]any{}, two...)
	three[5] = int64(3)
	c.want("HELLO 3 SETNAME me", three)
	c.want("CLIENT GETNAME", "me")
	c.raw(encode("HELLO", "3"))
	if kind, err := c.rd.Peek(1); err != nil || kind[0] != '%' {
		t.Errorf("%q, %v: not a map", kind, err)
	}
	c.reply()
	for _, bad := range []string{"HELLO 4", "HELLO x", "HELLO 3 AUTH a", "HELLO 3 WHAT", "HELLO 3 SETNAME", "CLIENT WHAT", "CLIENT SETNAME", "CLIENT SETNAME \xff", "CLIENT GETNAME x", "HELLO 3 SETNAME \x7f", "COMMAND WHAT", "SELECT 1", "SUBSCRIBE x", "GET x"} {
		c.wantError(c.do(bad))
	}
	for _, command := range []string{"CLUSTER SLOTS", "CLUSTER SHARDS"} { // rueidis looks for that word
		c.wantError(c.do(command), "CLUSTER")
	}
	c.wantError(c.do("SET k v"), "unknown command 'SET'", "CL.THROTTLE")
	c.want("CLIENT GETNAME", "me") // what failed has changed nothing
}

func TestCommandInfo(t *testing.T) {
	_, addr := listen(t, Options{})
	c := connect(t, addr)
	list := c.do("COMMAND INFO cl.throttle nope").([]any)
	if want := []any{"cl.throttle", int64(-5), []any{"fast", "write"}, int64(1), int64(1), int64(1)}; !reflect.DeepEqual(list[0], want) || list[1] != nil {
		t.Errorf("%v, want %v", list, want)
	}
	if n := len(c.do("COMMAND").([]any)); c.do("COMMAND COUNT") != int64(n) || n != len(commands) {
		t.Errorf("%d commands are described", n)
	}
}

func TestPassword(t *testing.T) {
	_, addr := listen(t, Options{Password: "secret"})
	c := connect(t, addr)
	for _, command := range []string{"PING", "CL.THROTTLE k 1 1 1", "HELLO 3", "COMMAND", "CLIENT ID"} {
		c.wantError(c.do(command), "NOAUTH")
	}
	c.wantError(c.do("AUTH wrong"), "WRONGPASS")
	c.wantError(c.do("AUTH admin secret"), "WRONGPASS")
	c.wantError(c.do("HELLO 3 AUTH default wrong"), "WRONGPASS")
	c.wantError(c.do("PING"), "NOAUTH")
	c.want("AUTH secret", "OK")
	c.want("PING", "PONG")
	c.wantError(c.do("AUTH wrong"), "WRONGPASS")
	c.want("PING", "PONG") // the connection is as it was
	c.want("AUTH default secret", "OK")
	c.want("RESET", "RESET")
	c.wantError(c.do("PING"), "NOAUTH")
	if _, bad := c.do("HELLO 3 AUTH default secret").(error); bad {
		t.Error("HELLO does not accept the password")
	}
	c.want("PING", "PONG")
	connect(t, addr).want("QUIT", "OK")
}

func TestAuthWithoutAPassword(t *testing.T) {
	_, addr := listen(t, Options{})
	c := connect(t, addr)
	c.wantError(c.do("AUTH x"), "without any password")
	c.want("AUTH default x", "OK") // as Redis has it for a user without a password
	c.want("PING", "PONG")
}

// A client library with its defaults, in both protocols.
func TestGoRedis(t *testing.T) {
	_, addr := listen(t, Options{Password: "secret"})
	for _, protocol := range []int{2, 3} {
		rdb := redis.NewClient(&redis.Options{Addr: addr, Protocol: protocol, Password: "secret", ClientName: "test"})
		defer rdb.Close()
		key := fmt.Sprint("user", protocol)
		for i := range int64(3) {
			got, err := rdb.Do(t.Context(), "CL.THROTTLE", key, 1, 1, 1000).Int64Slice()
			want := [][]int64{{0, 2, 1, -1, 1000}, {0, 2, 0, -1, 2000}, {1, 2, 0, 1000, 2000}}[i]
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("protocol %d, call %d: %v, %v, want %v", protocol, i, got, err, want)
			}
		}
	}
}
