package main

import (
	"bytes"
	"io"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	maxLogLines = 1000        // that wait to be written
	logPatience = time.Second // for the last of them
)

// logWriter writes to a log in a goroutine of its own: a reader of the log that takes nothing
// does not stop the server. Lines for which there is no room are dropped, and the log says how
// many. Make it with newLogWriter. It is safe for concurrent use.
type logWriter struct {
	to      io.Writer
	lines   chan []byte
	stop    chan struct{}
	done    chan struct{} // closed: the goroutine has ended
	dropped atomic.Uint64
}

func newLogWriter(to io.Writer) *logWriter {
	l := &logWriter{to: to, lines: make(chan []byte, maxLogLines), stop: make(chan struct{}), done: make(chan struct{})}
	go l.run()
	return l
}

// Write keeps a line to be written. It never fails, as there is nothing to do about it.
func (l *logWriter) Write(line []byte) (int, error) {
	select {
	case l.lines <- bytes.Clone(line):
	default:
		l.dropped.Add(1)
	}
	return len(line), nil
}

// close waits until all lines are written, for as long as logPatience. Lines that come later
// are dropped.
func (l *logWriter) close() {
	close(l.stop)
	select {
	case <-l.done:
	case <-time.After(logPatience):
	}
}

func (l *logWriter) run() {
	defer close(l.done)
	for {
		select {
		case line := <-l.lines:
			l.write(line)
			continue
		default:
		}
		select { // nothing waits
		case line := <-l.lines:
			l.write(line)
		case <-l.stop:
			return
		}
	}
}

func (l *logWriter) write(line []byte) {
	_, _ = l.to.Write(line) // the server goes on without a log
	if n := l.dropped.Swap(0); n > 0 {
		slog.New(slog.NewJSONHandler(l.to, nil)).Warn("serve: log lines were dropped: nothing took them", "lines", n)
	}
}
