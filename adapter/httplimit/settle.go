package httplimit

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/adapter/internal/settle"
	"github.com/hybridlimit/hybridlimit/adapter/internal/undecided"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Answer is how a request was answered: what Settle of a [Limit] and of [TransportOptions] judge
// its cost by.
type Answer struct {
	// Taken is the estimate, in units of the limit. A Settle that returns it changes nothing.
	Taken int64
	// Counted is the sum of what [Count] was told about this request.
	Counted int64
	// Status is that of the response. It is 101 if the handler has taken the connection over, and
	// 500 if it has panicked before it answered. 0: a [Transport] has got no response.
	Status int
	// Header has the fields of the response, and on a server its trailers. It is to be read alone.
	Header http.Header
	// Bytes are those of the body that the handler has written, or that the client has read of it
	// after decompression. What passes on a connection that was taken over is not counted.
	Bytes int64
	// Took is how long the handler ran, or how long it was from sending the request until the
	// response's body was closed.
	Took time.Duration
}

// Count adds n to Answer.Counted of the request that ctx belongs to: for a handler that learns
// the cost while it answers, such as tokens that it streams. On a server give it the request's
// context, or one derived from it; with a [Transport] that of Response.Request, before the body is
// closed. If one such request is made within another, as by a handler with the context of its own
// request, both hear of it. It is safe for concurrent use, n may be negative, and nothing happens
// if nobody settles. What is counted after the handler has returned, or the body was closed, is not
// booked, and the log or OnError says so: give the cost to Charge of the limiter then.
func Count(ctx context.Context, n int64) { settle.Count(ctx, n) }

// settles reports whether a limit of these wants to know how a request was answered.
func settles(asked []*boundLimit) bool {
	return slices.ContainsFunc(asked, func(l *boundLimit) bool { return l.Settle != nil })
}

// serveAndSettle hands the units back if the answer is one that costs nothing, or else books what
// it has cost.
func (h *handler) serveAndSettle(w http.ResponseWriter, r *http.Request, d *Decision, asked []*boundLimit) {
	rec := &recorder{ResponseWriter: w, ctx: r.Context(), status: http.StatusInternalServerError}
	served, meter := r, (*settle.Meter)(nil)
	if settles(asked) {
		ctx, m := settle.Within(r.Context())
		served, meter = r.WithContext(ctx), m
	}
	began := h.o.Clock.Now()
	defer func() { // also when the handler panics
		a := Answer{Status: rec.status, Header: rec.Header(), Bytes: rec.bytes, Took: max(h.o.Clock.Now()-began, 0)}
		if meter != nil {
			// The server removes the files of a form, and middlewares around this one read the pattern.
			r.MultipartForm, r.Pattern = served.MultipartForm, served.Pattern
			a.Counted = meter.End(func(err error) { h.owed.Note(r.Context(), true, err) })
		}
		h.book(served, d, asked, a)
	}()
	h.next.ServeHTTP(rec.wrapped(), served)
	rec.note(http.StatusOK) // what net/http sends if the handler has said nothing
}

// book makes the units that a request has taken as many as it has cost.
func (h *handler) book(r *http.Request, d *Decision, asked []*boundLimit, a Answer) {
	back := h.o.RefundOn != nil && h.o.RefundOn(a.Status)
	for i := range d.Checks {
		q := &d.Checks[i]
		switch {
		case d.WouldRefuse && q.Rule.IsDryRun():
			// Of several dry runs it is not known which have consumed: nothing is booked of them.
		case back:
			h.refund(r.Context(), q)
		case asked[i].Settle != nil:
			h.settle(r, q, asked[i], a)
		}
	}
}

// refund hands units back, also if the client has gone meanwhile.
func (h *handler) refund(ctx context.Context, q *limit.Check) {
	if _, err := h.lim.Refund(context.WithoutCancel(ctx), q.Key, q.Rule, q.N); err != nil {
		h.kept.Note(ctx, true, err)
	}
}

// settle books what a request has cost of one limit.
func (h *handler) settle(r *http.Request, q *limit.Check, l *boundLimit, a Answer) {
	a.Taken = q.N
	cost := l.Settle(r, a)
	if cost < 0 {
		undecided.Count(h.lim, q.Rule)
	}
	if err := settle.Book(r.Context(), h.lim, q, cost); err != nil {
		h.owed.Note(r.Context(), true, err)
	}
}
