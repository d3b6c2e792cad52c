package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// recorder remembers the status of a response.
type recorder struct {
	http.ResponseWriter
	status int // until noted what a panic makes of it
	noted  bool
}

// wrapped returns a ResponseWriter that can do what the server's own can, as handlers find
// out by asking for http.Flusher and http.Hijacker.
func (w *recorder) wrapped() http.ResponseWriter {
	_, flushes := w.ResponseWriter.(http.Flusher)
	_, hijacks := w.ResponseWriter.(http.Hijacker)
	switch {
	case flushes && hijacks:
		return struct {
			*recorder
			flusher
			hijacker
		}{w, flusher{w}, hijacker{w}}
	case flushes:
		return struct {
			*recorder
			flusher
		}{w, flusher{w}}
	case hijacks:
		return struct {
			*recorder
			hijacker
		}{w, hijacker{w}}
	}
	return w
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
	return w.ResponseWriter.Write(b)
}

// ReadFrom lets the server send a file without a copy through this process. It implies 200, as
// Write does, but only once there is a byte: if src fails before, the handler can still answer.
func (w *recorder) ReadFrom(src io.Reader) (int64, error) {
	n, err := io.Copy(w.ResponseWriter, src)
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
