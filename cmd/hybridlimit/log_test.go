package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// Fault 97: a reader of the log that takes nothing stops neither the server nor its end.
func TestServeWithALogThatIsNotRead(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	defer out.Close()
	p := &program{ctx: ctx, out: io.Discard, errOut: in, in: strings.NewReader(""), environ: os.Environ()}
	code := make(chan int, 1)
	go func() {
		code <- p.run([]string{"serve", "--alone", "--rules", rulesAt(t, someRules), "--grpc=-", "--resp=127.0.0.1:0", "--check=-", "--http=-"})
	}()
	addr := ""
	for lines := bufio.NewScanner(out); addr == "" && lines.Scan(); {
		var line struct{ Address string }
		_ = json.Unmarshal(lines.Bytes(), &line)
		addr = line.Address
	}
	for range 3 {
		badClient(t, addr)
	}
	answer(t, addr, "HL.TAKE api alice")
	cancel()
	select {
	case got := <-code:
		if got != exitOK {
			t.Errorf("exit code %d", got)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}

// gate is a writer that waits until it is opened.
type gate struct {
	opened chan struct{}
	bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) { <-g.opened; return g.Buffer.Write(p) }

func TestLogLinesAreBounded(t *testing.T) {
	to := &gate{opened: make(chan struct{})}
	l := newLogWriter(to)
	const more = 50
	for i := range maxLogLines + more {
		fmt.Fprintln(l, i)
	}
	close(to.opened)
	l.close()
	text := to.String()
	if n := strings.Count(text, "\n"); n < maxLogLines+1 || n > maxLogLines+2 || !strings.HasPrefix(text, "0\n") {
		t.Errorf("%d lines", n)
	}
	if !strings.Contains(text, `"lines":50}`) && !strings.Contains(text, `"lines":49}`) { // one may be on its way
		t.Errorf("%s: nothing says what is missing", text)
	}
}
