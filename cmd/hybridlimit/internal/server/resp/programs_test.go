package resp

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// run runs a program and returns what it prints. Without the program the test is skipped;
// with the environment variable CI=true it fails, so that nothing is skipped unnoticed.
func run(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("needs %s, which is not in PATH", name)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if bad := new(exec.ExitError); errors.As(err, &bad) {
			t.Fatalf("%s: %v\n%s%s", name, err, out.String(), errs.String())
		}
		t.Fatal(err)
	}
	return out.String()
}

func TestRedisCLI(t *testing.T) {
	_, addr := listen(t, Options{Password: "secret", Rules: ruleset(t, "rules: {api: {algorithm: token-bucket, limit: 60, per: 1m, burst: 2}}")})
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	for user, more := range map[string][]string{"user": nil, "user of RESP3": {"-3"}} {
		args := append(more, "-h", host, "-p", port, "--no-auth-warning", "-a", "secret")
		got := run(t, "", "redis-cli", append(args, "CL.THROTTLE", user, "15", "30", "60")...)
		if want := "0\n16\n15\n-1\n2\n"; got != want {
			t.Errorf("%s: %q, want %q", user, got, want)
		}
		// As a script that is piped in.
		got = run(t, "ping\nHL.TAKE api '"+user+"'\nHL.PEEK api '"+user+"'\nHL.TAKE none x\n", "redis-cli", args...)
		if want := "PONG\n0\n2\n1\n-1\n1\n0\n2\n1\n-1\n1\nERR there is no rule 'none' in the rules file"; strings.TrimSpace(got) != want {
			t.Errorf("%s: %q, want %q", user, got, want)
		}
	}
}

// python is a program in another language with a client of Redis that fits on a page.
const python = `
import socket, sys

class Redis:
    def __init__(self, host, port):
        self.file = socket.create_connection((host, port), timeout=60).makefile("rwb")

    def execute_command(self, *args):
        self.file.write(b"*%d\r\n" % len(args))
        for a in (str(a).encode() for a in args):
            self.file.write(b"$%d\r\n%s\r\n" % (len(a), a))
        self.file.flush()
        return self.reply()

    def reply(self):
        line = self.file.readline().rstrip(b"\r\n")
        kind, body = line[:1], line[1:]
        if kind == b"-":
            raise RuntimeError(body.decode())
        if kind == b"+":
            return body.decode()
        if kind == b"$":
            return self.file.read(int(body) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(body))]
        return int(body)

r = Redis(sys.argv[1], int(sys.argv[2]))
for _ in range(4):
    limited, limit, remaining, retry_after, reset = r.execute_command("CL.THROTTLE", "jürgen", 2, 1, 1000)
    print("refused, try again in %d s" % retry_after if limited else "admitted, %d of %d left" % (remaining, limit))
try:
    r.execute_command("CL.THROTTLE", "jürgen", "a lot", 1, 1)
except RuntimeError as e:
    print(e)
`

func TestPython(t *testing.T) {
	_, addr := listen(t, Options{})
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	got := run(t, python, "python3", "-", host, port)
	want := "admitted, 2 of 3 left\nadmitted, 1 of 3 left\nadmitted, 0 of 3 left\nrefused, try again in 1000 s\n" +
		"ERR max_burst is 'a lot', must be an integer from 0 to 9007199254740991\n"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
