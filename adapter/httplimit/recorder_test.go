package httplimit

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/iotest"
	"time"
)

// counting hands units back for no status, and says which one it was asked about.
func counting(statuses chan int) Options {
	return Options{RefundOn: func(status int) bool { statuses <- status; return false }}
}

// A copy that fails before its first byte has answered nothing: the status that the handler
// sends then is the one that counts.
func TestCopyThatFailsAtOnce(t *testing.T) {
	lim, _ := newLimiter(t)
	statuses := make(chan int, 1)
	s := server(t, protect(t, lim, counting(statuses), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := io.Copy(w, iotest.ErrReader(io.ErrUnexpectedEOF)); err != nil {
			http.Error(w, "upstream has gone", http.StatusBadGateway)
		}
	}), Limit{Rule: perMinute("r", 100), Key: By(byKey)}))
	get(t, s, "/", "Key: k").want(t, http.StatusBadGateway)
	if status := <-statuses; status != http.StatusBadGateway {
		t.Errorf("status %d is asked about", status)
	}
}

// A handler that sends events learns from Flush that its client has gone.
func TestFlushReportsErrors(t *testing.T) {
	lim, _ := newLimiter(t)
	flushed := make(chan error, 100) // the client repeats requests whose connection breaks
	s := server(t, protect(t, lim, Options{RefundOn: func(int) bool { return false }}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		if err := c.SetWriteDeadline(time.Unix(1, 0)); err != nil {
			t.Error(err)
		}
		flushed <- c.Flush()
	}), Limit{Rule: perMinute("r", 100), Key: By(byKey)}))
	r, _ := http.NewRequest(http.MethodGet, s.URL, nil)
	r.Header.Set("Key", "k")
	if resp, err := s.Client().Do(r); err == nil {
		resp.Body.Close()
		t.Error("an answer was written past its deadline")
	}
	if err := <-flushed; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Flush: %v", err)
	}
}

// Fault 99: without a refund the handler gets the server's own ResponseWriter; with one, a writer that
// promises no more than the server's can do.
func TestResponseWriterPromisesNoMore(t *testing.T) {
	type (
		f = http.Flusher
		h = http.Hijacker
		p = http.Pusher
		w = http.ResponseWriter
	)
	rec, no := httptest.NewRecorder(), noMore{}
	for _, writer := range []http.ResponseWriter{
		struct{ w }{rec}, struct {
			w
			f
		}{rec, rec}, struct {
			w
			h
		}{rec, no}, struct {
			w
			p
		}{rec, no}, struct {
			w
			f
			h
		}{rec, rec, no}, struct {
			w
			f
			p
		}{rec, rec, no}, struct {
			w
			h
			p
		}{rec, no, no}, struct {
			w
			f
			h
			p
		}{rec, rec, no, no},
	} {
		lim, _ := newLimiter(t)
		statuses := make(chan int, 1)
		for name, o := range map[string]Options{"plain": {}, "refund": counting(statuses)} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Key", "k")
			protect(t, lim, o, http.HandlerFunc(func(got http.ResponseWriter, _ *http.Request) {
				if optional(got) != optional(writer) || (got == writer) != (name == "plain") {
					t.Errorf("%s, %T: got %T", name, writer, got)
				}
				if h, ok := got.(http.Hijacker); ok {
					h.Hijack() // fails, and leaves the response as it is
				}
				if p, ok := got.(http.Pusher); ok && p.Push("/", nil) != errPushed {
					t.Errorf("%T: does not push", got)
				}
			}), Limit{Rule: perMinute("r", 100), Key: By(byKey)}).ServeHTTP(writer, r)
		}
		if status := <-statuses; status != 200 {
			t.Errorf("%T: status %d", writer, status)
		}
	}
}

// optional returns which of the optional interfaces w has.
func optional(w http.ResponseWriter) (has [3]bool) {
	_, has[0] = w.(http.Flusher)
	_, has[1] = w.(http.Hijacker)
	_, has[2] = w.(http.Pusher)
	return has
}

var errPushed = errors.New("pushed")

// noMore has methods that only say that they were called.
type noMore struct{}

func (noMore) Push(string, *http.PushOptions) error { return errPushed }

func (noMore) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, http.ErrNotSupported }

// Fault 99: CloseNotify is that of the server, or else follows the request's context; a text
// is 200.
func TestResponseWriterCloseNotify(t *testing.T) {
	lim, _ := newLimiter(t)
	statuses := make(chan int, 1)
	rec := httptest.NewRecorder()
	ctx, leave := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	r.Header.Set("Key", "k")
	protect(t, lim, counting(statuses), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		gone := w.(closeNotifier).CloseNotify()
		leave()
		if !<-gone {
			t.Error("the client has not gone")
		}
		w.(io.StringWriter).WriteString("text")
	}), Limit{Rule: perMinute("r", 100), Key: By(byKey)}).ServeHTTP(rec, r)
	if status := <-statuses; status != 200 || rec.Body.String() != "text" {
		t.Errorf("status %d, %q", status, rec.Body)
	}
}
