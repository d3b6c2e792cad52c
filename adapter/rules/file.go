package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/adapter/internal/undecided"
	"github.com/hybridlimit/hybridlimit/internal/clocks"
)

// File is a rules file that is followed: it is read again when it changes. Make it with
// [Watch]. All methods are safe for concurrent use.
type File struct {
	path string // as errors show it
	abs  string // as it is read, wherever the process goes
	o    Options
	read func(path string) ([]byte, error) // of tests

	lacking *undecided.Log // of look-ups that found nothing

	set atomic.Pointer[Set]

	mu      sync.Mutex // held for a whole reload; protects what follows
	stats   Stats
	badLine int // of the first mistake, if stats.LastError is set

	stop chan struct{}
	once sync.Once
	done sync.WaitGroup
}

// Stats says how the loading of a file goes. Its fields are plain numbers for collectors of
// metrics.
type Stats struct {
	Loads    uint64 // files that came into force, the first one included
	Failures uint64 // files that were refused, or could not be read; the same mistake in a row counts once
	// LastLoad is when the rules in force were loaded, LastFailure when a file was refused for
	// the last time; zero: never.
	LastLoad, LastFailure time.Time
	// LastError says why the file as it is now is not in force; empty if it is. So an alert is
	// on "not empty".
	LastError string
	Size      Size // of the rules in force
}

// Watch loads a file and follows it until [File.Close]. A first file that is bad is an error
// of type [Problems]: there are no rules to keep.
func Watch(path string, o Options) (*File, error) {
	f, err := openFile(path, o, readFile)
	if err != nil {
		return nil, err
	}
	w := newWatcher(f.abs)
	if w.err != nil {
		f.log(slog.LevelWarn, "rules: the system does not tell of changes, the file is polled", "file", path, "every_seconds", f.o.Poll.Seconds(), "error", w.err)
	}
	f.done.Go(func() { f.follow(w) })
	return f, nil
}

// openFile loads a file without following it.
func openFile(path string, o Options, read func(string) ([]byte, error)) (*File, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	f := &File{path: path, abs: path, o: o, read: read, stop: make(chan struct{})}
	f.lacking = undecided.New(o.Logger, o.Clock, "rules: what was looked up is not in the file")
	if abs, err := filepath.Abs(path); err == nil {
		f.abs = abs
	}
	if err := f.Reload(); err != nil {
		return nil, err
	}
	return f, nil
}

// Set returns the rules in force: one load of a pointer. Ask again for each decision, or
// changes go unnoticed.
func (f *File) Set() *Set { return f.set.Load() }

// Stats returns how the loading has gone so far.
func (f *File) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

// Close stops following the file, and returns when that is done. The rules stay in force.
// Further calls do nothing.
func (f *File) Close() {
	f.once.Do(func() { close(f.stop) })
	f.done.Wait()
}

// Reload reads the file now. The rules change as a whole or not at all: with an error, which
// is of type [Problems], those in force stay. It is what happens by itself when the file
// changes.
func (f *File) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.set.Load()
	text, err := f.read(f.abs)
	if err != nil {
		return f.refuseLocked(unreadable(f.path, err))
	}
	if old != nil && string(text) == old.source.text {
		f.unchangedLocked()
		return nil
	}
	set, problems := parse(f.path, text, old, f.o.Check)
	if problems == nil && old != nil {
		problems = set.refusal(old, f.path, f.o.AllowRemoval)
	}
	if problems != nil {
		return f.refuseLocked(problems)
	}
	set.lacking = f.lacking
	f.set.Store(set)
	f.stats.Loads++
	size := set.Size()
	f.logMendedLocked("rules: loaded", "file", f.path, "rules", size.Rules, "plans", size.Plans,
		"overrides", size.Overrides, "descriptors", size.Descriptors)
	f.stats.LastLoad, f.stats.LastError, f.stats.Size = f.now(), "", size
	return nil
}

// refuseLocked notes that the file is bad. The same mistake is told once, however often the
// file is read.
func (f *File) refuseLocked(problems Problems) error {
	if text := problems.Error(); text != f.stats.LastError {
		f.stats.Failures++
		f.stats.LastFailure, f.stats.LastError, f.badLine = f.now(), text, problems[0].Line
		if f.set.Load() != nil { // else Watch returns it
			f.log(slog.LevelError, "rules: the file is refused, the rules before stay in force", "file", f.path, "problems", strings.Join(problems.lines(), "; "))
		}
	}
	return problems
}

// unchangedLocked notes that the file is what is in force.
func (f *File) unchangedLocked() {
	if f.stats.LastError != "" {
		f.logMendedLocked("rules: the file is again what is in force", "file", f.path)
		f.stats.LastError = ""
	}
}

// logMendedLocked logs that the file is in force, to the default logger only if it was bad before.
func (f *File) logMendedLocked(text string, attrs ...any) {
	if f.o.Logger != nil || f.stats.LastError != "" {
		f.log(slog.LevelInfo, text, attrs...)
	}
}

func (f *File) log(level slog.Level, text string, attrs ...any) {
	cmp.Or(f.o.Logger, slog.Default()).Log(context.Background(), level, text, attrs...)
}

// now returns the time of day.
func (f *File) now() time.Time { return time.Unix(0, int64(f.o.Clock.Now()+clocks.Ahead(f.o.Clock))) }

// follow reloads when the file has changed, until Close.
func (f *File) follow(w *watcher) {
	defer w.close()
	poll := time.NewTicker(f.o.Poll)
	defer poll.Stop()
	// The file may have changed before it was watched, so it begins as changed. One that does
	// not stop to change is read at last, too.
	quiet, latest := time.NewTimer(f.o.Quiet), time.NewTimer(10*f.o.Quiet)
	waiting := true // for quiet or latest
	changed := func() {
		quiet.Reset(f.o.Quiet)
		if !waiting {
			latest.Reset(10 * f.o.Quiet)
			waiting = true
		}
	}
	read := func() {
		waiting = false
		quiet.Stop()
		latest.Stop()
		w.renew() // before it is read, so that no change is missed
		f.reload()
	}
	for {
		select {
		case <-f.stop:
			return
		case e, ok := <-w.events:
			if !ok {
				w.events = nil
			} else if w.concerns(e.Name) {
				changed()
			}
		case _, ok := <-w.errors:
			if !ok {
				w.errors = nil
			} else {
				changed() // notices were lost
			}
		case <-quiet.C:
			read()
		case <-latest.C:
			read()
		case <-poll.C:
			read()
		}
	}
}

// reload is Reload for a goroutine that must not die: a panic is a refusal.
func (f *File) reload() {
	defer func() {
		if r := recover(); r != nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			_ = f.refuseLocked(failed(f.path, fmt.Sprintf("cannot be read: %v", r), errors.ErrUnsupported))
		}
	}()
	_ = f.Reload() // it is in the log and in Stats
}
