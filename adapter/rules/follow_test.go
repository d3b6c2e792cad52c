package rules

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

// followed is a file in a bubble, with notices that the test gives.
type followed struct {
	*File
	text   atomic.Pointer[string] // of the file
	reads  atomic.Int64
	events chan fsnotify.Event
	errors chan error
}

func bubbleFollow(t *testing.T, o Options) *followed {
	t.Helper()
	w := &followed{events: make(chan fsnotify.Event), errors: make(chan error)}
	w.put(one(1))
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	f, err := openFile("/etc/rules.yaml", o, func(string) ([]byte, error) {
		w.reads.Add(1)
		return []byte(*w.text.Load()), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.File = f
	f.done.Go(func() {
		f.follow(&watcher{events: w.events, errors: w.errors, names: map[string]bool{"/etc/rules.yaml": true}})
	})
	synctest.Wait()
	time.Sleep(f.o.Quiet) // it begins with a reading
	synctest.Wait()
	w.reads.Store(0)
	return w
}

func (w *followed) put(text string) { w.text.Store(&text) }

func (w *followed) touch(name string) {
	w.events <- fsnotify.Event{Name: name, Op: fsnotify.Write}
	synctest.Wait()
}

// A thousand quick changes are one reading when they end, and a few while they go on.
func TestQuickChangesAreFewReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bubbleFollow(t, Options{})
		defer w.Close()
		for n := range 1000 { // for 10 s
			w.put(one(n + 2))
			w.touch("/etc/rules.yaml")
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		// One reading after 1 s without a quiet 100 ms, ten times, and the last one.
		if n := w.reads.Load(); n < 10 || n > 11 || limitOf(w.File) != 1001 {
			t.Errorf("%d readings, limit %d", n, limitOf(w.File))
		}
	})
}

func TestQuietBeforeReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bubbleFollow(t, Options{Quiet: time.Second})
		defer w.Close()
		w.put(one(2))
		w.touch("/etc/rules.yaml")
		time.Sleep(time.Second - time.Nanosecond)
		synctest.Wait()
		if w.reads.Load() != 0 {
			t.Error("it was read while it may still be written")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if w.reads.Load() != 1 || limitOf(w.File) != 2 {
			t.Errorf("%d readings", w.reads.Load())
		}
		w.touch("/etc/passwd") // of the same directory
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if w.reads.Load() != 1 {
			t.Error("it is read because another file has changed")
		}
	})
}

// Without notices, and after some were lost, the file is read all the same.
func TestLostNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bubbleFollow(t, Options{})
		defer w.Close()
		w.put(one(2))
		w.errors <- errors.New("overflow")
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if limitOf(w.File) != 2 {
			t.Error("after lost notices the file was not read")
		}
		close(w.events)
		close(w.errors)
		for n := 3; n < 6; n++ {
			w.put(one(n))
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if limitOf(w.File) != int64(n) {
				t.Error("without notices the file was not polled")
			}
		}
	})
}

// A bad file that is polled is one failure and one line, not one for each poll.
func TestPollingABadFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w := bubbleFollow(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer w.Close()
		w.put("rules: {}\n")
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := w.Stats(); s.Failures != 1 || s.Loads != 1 || w.reads.Load() < 100 {
			t.Errorf("%+v after %d readings", s, w.reads.Load())
		}
		w.put(fmt.Sprint(one(1), "foo: 1\n"))
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := w.Stats(); s.Failures != 2 || lines(&log) != 3 { // the first one is of loading it
			t.Errorf("another mistake: %+v\n%s", s, &log)
		}
		w.Close()
		w.Close() // further calls do nothing
	})
}

// Without a logger the default one of slog gets what somebody has to know: a file that is refused and
// the change that mends it, and rules and plans that are asked for and missing. It is throttled.
func TestDefaultLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := one(1)
		f, err := openFile("/etc/rules.yaml", Options{}, func(string) ([]byte, error) { return []byte(text), nil })
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		before := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		defer slog.SetDefault(before)
		load := func(to string) func() { return func() { text = to; _ = f.Reload() } }
		plan := func() { f.Set().ForPlan("api", strings.Repeat("gold\n", 100), "user") }
		for i, c := range []struct {
			do   func()
			want string
		}{
			{load(one(2)), ""}, // all is well
			{load("rules: {}\n"), "level=ERROR"},
			{load("rules: {}\n"), ""},
			{load(one(2)), "level=INFO msg=\"rules: the file is again what is in force\""},
			{load("rules: {}\n"), "level=ERROR"},
			{load(one(3)), "level=INFO msg=\"rules: loaded\""},
			{plan, `level=WARN msg="rules: what was looked up is not in the file" err="there is no plan \"gold`},
			{plan, ""},
			{func() { time.Sleep(10 * time.Second); f.Set().For("b", "user") }, `no rule \"b\"" skipped=1`},
			{func() { f.Set().For("api", "user") }, ""},
		} {
			log.Reset()
			c.do()
			if is := log.String(); (c.want == "") != (is == "") || !strings.Contains(is, c.want) || len(is) > 400 {
				t.Errorf("%d: %q, want %q", i, is, c.want)
			}
		}
	})
}
