package httplimit

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
)

// recorder remembers the status of a response, and counts the bytes of its body.
type recorder struct {
	http.ResponseWriter
	ctx    context.Context // of the request
	status int             // until noted what a panic makes of it
	noted  bool
	bytes  int64
}

// What a server's ResponseWriter may have beyond the interface, and handlers ask it for. The
// others need no combinations: Write is as good as WriteString and ReadFrom, CloseNotify is
// the request's context, and http.ResponseController finds the rest with Unwrap.
type (
	flushes struct {
		*recorder
		flusher
	}
	hijacks struct {
		*recorder
		hijacker
	}
	flushesAndHijacks struct {
		*recorder
		flusher
		hijacker
	}
)

// wrapped returns a ResponseWriter that can do what the server's own can, and promises no
// more: a handler that finds no Hijacker answers in another way.
func (w *recorder) wrapped() http.ResponseWriter {
	_, flush := w.ResponseWriter.(http.Flusher)
	_, hijack := w.ResponseWriter.(http.Hijacker)
	if p, push := w.ResponseWriter.(http.Pusher); push {
		return w.pushing(p, flush, hijack)
	}
	switch {
	case flush && hijack:
		return flushesAndHijacks{w, flusher{w}, hijacker{w}}
	case flush:
		return flushes{w, flusher{w}}
	case hijack:
		return hijacks{w, hijacker{w}}
	}
	return w
}

// pushing is wrapped for a writer that has Push, as those of HTTP/2 have.
func (w *recorder) pushing(p http.Pusher, flush, hijack bool) http.ResponseWriter {
	switch {
	case flush && hijack:
		return struct {
			flushesAndHijacks
			http.Pusher
		}{flushesAndHijacks{w, flusher{w}, hijacker{w}}, p}
	case flush:
		return struct {
			flushes
			http.Pusher
		}{flushes{w, flusher{w}}, p}
	case hijack:
		return struct {
			hijacks
			http.Pusher
		}{hijacks{w, hijacker{w}}, p}
	}
	return struct {
		*recorder
		http.Pusher
	}{w, p}
}

// note takes down the first status that is final.
func (w *recorder) note(status int) {
	if !w.noted && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status, w.noted = status, true
	}
}

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader notes the status.
func (w *recorder) WriteHeader(status int) {
	w.note(status)
	w.ResponseWriter.WriteHeader(status)
}

// Write implies 200.
func (w *recorder) Write(b []byte) (int, error) {
	w.note(http.StatusOK)
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// WriteString lets the server write a text without a copy. It implies 200.
func (w *recorder) WriteString(s string) (int, error) {
	w.note(http.StatusOK)
	n, err := io.WriteString(w.ResponseWriter, s)
	w.bytes += int64(n)
	return n, err
}

// closeNotifier is http.CloseNotifier, which is deprecated, and which handlers ask for all the same.
type closeNotifier interface{ CloseNotify() <-chan bool }

// CloseNotify says when the client has gone. A server's writer that cannot has a request whose
// context does: gin asks for one, and panics without it.
func (w *recorder) CloseNotify() <-chan bool {
	if n, ok := w.ResponseWriter.(closeNotifier); ok {
		return n.CloseNotify()
	}
	gone := make(chan bool, 1)
	context.AfterFunc(w.ctx, func() { gone <- true })
	return gone
}

// ReadFrom lets the server send a file without a copy through this process. It implies 200, as
// Write does, but only once there is a byte: if src fails before, the handler can still answer.
func (w *recorder) ReadFrom(src io.Reader) (int64, error) {
	n, err := io.Copy(w.ResponseWriter, src)
	w.bytes += n
	if n > 0 {
		w.note(http.StatusOK)
	}
	return n, err
}

type flusher struct{ rec *recorder }

// Flush sends the header as well.
func (f flusher) Flush() { _ = f.FlushError() }

// FlushError is for http.ResponseController: without it the error of a client that has gone
// would end in Flush.
func (f flusher) FlushError() error {
	f.rec.note(http.StatusOK)
	return http.NewResponseController(f.rec.ResponseWriter).Flush()
}

type hijacker struct{ rec *recorder }

// Hijack takes the connection over: what is answered there is not known.
func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := h.rec.ResponseWriter.(http.Hijacker).Hijack()
	if err == nil {
		h.rec.note(http.StatusSwitchingProtocols)
	}
	return c, rw, err
}
