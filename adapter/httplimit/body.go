package httplimit

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/adapter/internal/settle"
	"github.com/hybridlimit/hybridlimit/limit"
)

// sendAndSettle sends a request that was admitted, and books what it has cost when the response's
// body is closed.
func (t *Transport) sendAndSettle(r *http.Request, q limit.Check, began time.Duration) (*http.Response, error) {
	ctx, meter := settle.Within(r.Context())
	sent := r.WithContext(ctx)
	book := func(a Answer) {
		failed := func(err error) { t.o.OnError(r, fmt.Errorf("httplimit: settling a cost: %w", err)) }
		a.Taken, a.Counted, a.Took = q.N, meter.End(failed), max(t.o.Clock.Now()-began, 0)
		if err := settle.Book(ctx, t.lim, &q, t.o.Settle(sent, a)); err != nil {
			failed(err)
		}
	}
	resp, err := t.o.Base.RoundTrip(sent)
	if err != nil || resp == nil {
		book(Answer{})
		return resp, err
	}
	a := Answer{Status: resp.StatusCode, Header: resp.Header}
	if resp.Body == nil {
		book(a)
		return resp, nil
	}
	if resp.Request == nil {
		resp.Request = sent // its context is what Count needs
	}
	b := &settledBody{ReadCloser: resp.Body, closed: func(bytes int64) {
		a.Bytes = bytes
		book(a)
	}}
	resp.Body = b.wrapped()
	return resp, nil
}

// settledBody is the body of a response whose cost is known when it is closed.
type settledBody struct {
	io.ReadCloser
	bytes  atomic.Int64
	once   sync.Once
	closed func(bytes int64)
}

// wrapped returns a body that can do what the one below can: that of a 101 is a connection.
func (b *settledBody) wrapped() io.ReadCloser {
	w, writes := b.ReadCloser.(io.Writer)
	c, half := b.ReadCloser.(closeWriter)
	switch {
	case writes && half:
		return struct {
			*settledBody
			io.Writer
			closeWriter
		}{b, w, c}
	case writes:
		return struct {
			*settledBody
			io.Writer
		}{b, w}
	}
	return b
}

// closeWriter is a connection whose writing half can be closed by itself.
type closeWriter interface{ CloseWrite() error }

// Read counts.
func (b *settledBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes.Add(int64(n))
	return n, err
}

// Close may be called several times, and while Read is.
func (b *settledBody) Close() error {
	err := b.ReadCloser.Close()
	b.once.Do(func() { b.closed(b.bytes.Load()) })
	return err
}
