package httplimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// settling returns a client's transport whose estimate is 10, and the ledger that it books in.
func settling(t *testing.T, base http.RoundTripper, o TransportOptions) (*Transport, *ledger) {
	t.Helper()
	lim, _ := newLimiter(t)
	l := newLedger(lim)
	o.Base, o.Ignore = base, true
	o.Cost = func(*http.Request) int64 { return 10 }
	if o.Settle == nil {
		o.Settle = byCount
	}
	if o.OnError == nil {
		o.OnError = func(_ *http.Request, err error) { t.Error(err) }
	}
	tr, err := NewTransport(l, perMinute("tokens", 100), toHost, o)
	if err != nil {
		t.Fatal(err)
	}
	return tr, l
}

// A request is settled once, when its body is closed, by what the caller has counted until then. What
// is counted later is not booked, and OnError hears it. Errors of the body are the caller's.
func TestTransportSettles(t *testing.T) {
	for name, c := range map[string]struct {
		count  int64
		booked string
	}{
		"more": {25, "[charge a.example 15]"}, "fewer": {4, "[refund a.example 6]"}, "as many": {10, "[]"}, "nothing": {0, "[refund a.example 10]"},
	} {
		var got Answer
		var of *http.Request
		var late []error
		closed := errors.New("closed badly")
		tr, l := settling(t, upstream(func(*http.Request) *http.Response {
			resp := says(201, "Model: m")
			resp.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(strings.NewReader("12345"), iotest.ErrReader(io.ErrUnexpectedEOF)), closes{closed}}
			return resp
		}), TransportOptions{
			Settle:  func(r *http.Request, a Answer) int64 { of, got = r, a; return a.Counted },
			OnError: func(_ *http.Request, err error) { late = append(late, err) },
		})
		ctx, cancel := context.WithCancel(t.Context())
		r, _ := request(ctx, "http://a.example/")
		resp, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err != io.ErrUnexpectedEOF || l.booked != nil {
			t.Errorf("%s: booked %v before the body is closed, %v", name, l.booked, err)
		}
		Count(resp.Request.Context(), c.count)
		cancel() // such as by a deferred call, before the body is closed
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if err := resp.Body.Close(); err != closed {
					t.Errorf("%s: Close: %v", name, err)
				}
			})
		}
		all.Wait()
		Count(resp.Request.Context(), 7)
		if len(late) != 1 || !strings.Contains(late[0].Error(), "7 units were counted after the call had ended") {
			t.Errorf("%s: errors %v", name, late)
		}
		if fmt.Sprint(l.booked) != c.booked || l.ctx != nil && l.ctx.Err() != nil {
			t.Errorf("%s: booked %v", name, l.booked)
		}
		if got.Taken != 10 || got.Status != 201 || got.Bytes != 5 || got.Header.Get("Model") != "m" || of.URL != r.URL {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

type closes struct{ err error }

func (c closes) Close() error { return c.err }

// failing sends nothing.
type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

// A request that has failed is settled at once, and one that was not sent is not.
func TestTransportSettlesFailures(t *testing.T) {
	var got []Answer
	o := TransportOptions{NoWait: true, Settle: func(_ *http.Request, a Answer) int64 { got = append(got, a); return 0 }}
	for _, base := range []http.RoundTripper{failing{errAway}, neither{}, upstream(func(*http.Request) *http.Response {
		return &http.Response{StatusCode: 204}
	})} {
		got = nil
		tr, l := settling(t, base, o)
		r, _ := request(t.Context(), "http://a.example/")
		resp, err := tr.RoundTrip(r)
		if failed := base == http.RoundTripper(failing{errAway}); errors.Is(err, errAway) != failed || len(got) != 1 || got[0].Taken != 10 || fmt.Sprint(l.booked) != "[refund a.example 10]" {
			t.Fatalf("%T: %v, settled %+v, booked %v", base, err, got, l.booked)
		}
		if got[0].Status != 0 && resp.StatusCode != got[0].Status {
			t.Errorf("%T: %+v", base, got)
		}
		got, l.booked = nil, nil
		l.Take(t.Context(), "a.example", perMinute("tokens", 100), 95)
		refused := new(RefusedError)
		if _, err := tr.RoundTrip(r); !errors.As(err, &refused) || got != nil || l.booked != nil {
			t.Errorf("a request that was not sent: %v, settled %+v, booked %v", err, got, l.booked)
		}
	}
}

// A negative cost books nothing, and neither it nor an error of the limiter is the client's.
func TestTransportSettleFails(t *testing.T) {
	for _, c := range []struct {
		cost int64
		err  error
		is   error
	}{{-1, nil, limit.ErrInvalidN}, {11, errAway, errAway}, {0, errAway, errAway}} {
		var heard []error
		tr, l := settling(t, upstream(func(*http.Request) *http.Response { return says(200) }), TransportOptions{
			Settle: func(*http.Request, Answer) int64 { return c.cost }, OnError: func(_ *http.Request, err error) { heard = append(heard, err) },
		})
		l.err = c.err
		r, _ := request(t.Context(), "http://a.example/")
		resp, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || len(heard) != 1 || !errors.Is(heard[0], c.is) {
			t.Errorf("%d: %v, heard %v", c.cost, err, heard)
		}
		if res, _ := l.Peek(t.Context(), "a.example", perMinute("tokens", 100)); res.Remaining != 90 || c.cost < 0 && l.booked != nil {
			t.Errorf("%d: %d left, booked %v", c.cost, res.Remaining, l.booked)
		}
	}
}

// A body promises no more than the one below can do.
func TestTransportBodiesStayAsTheyAre(t *testing.T) {
	for _, c := range []struct {
		body         io.ReadCloser
		writes, half bool
	}{
		{http.NoBody, false, false},
		{struct {
			io.ReadCloser
			io.Writer
		}{http.NoBody, io.Discard}, true, false},
		{struct {
			io.ReadCloser
			io.Writer
			closeWriter
		}{http.NoBody, io.Discard, nil}, true, true},
	} {
		tr, _ := settling(t, upstream(func(*http.Request) *http.Response {
			resp := says(200)
			resp.Body = c.body
			return resp
		}), TransportOptions{})
		r, _ := request(t.Context(), "http://a.example/")
		resp, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_, writes := resp.Body.(io.Writer)
		if _, half := resp.Body.(closeWriter); writes != c.writes || half != c.half {
			t.Errorf("%T became %T", c.body, resp.Body)
		}
	}
}

// The estimate of a request is its own. A negative one is not sent, and its body is closed.
func TestTransportCost(t *testing.T) {
	lim, _ := newLimiter(t)
	rule := limit.Must(limit.SlidingWindow("w", 10, time.Minute))
	sent := 0
	tr := newTransport(t, lim, rule, TransportOptions{
		NoWait: true, Ignore: true, Base: upstream(func(*http.Request) *http.Response { sent++; return says(200) }),
		Cost: func(r *http.Request) int64 { n, _ := strconv.ParseInt(r.URL.Path[1:], 10, 64); return n },
	})
	for _, c := range []struct {
		path string
		left int64
		ok   bool
	}{{"4", 6, true}, {"7", 6, false}, {"0", 5, true}, {"-1", 5, false}, {"-9223372036854775808", 5, false}} {
		r, body := request(t.Context(), "http://a.example/"+c.path)
		_, err := tr.RoundTrip(r)
		if left := lim.Peek("a.example", rule).Remaining; left != c.left || (err == nil) != c.ok || !body.closed.Load() || c.path[0] == '-' && !errors.Is(err, limit.ErrInvalidN) {
			t.Errorf("%s: %v, %d left, body closed %t", c.path, err, left, body.closed.Load())
		}
	}
	if sent != 2 {
		t.Errorf("%d were sent", sent)
	}
}

// Cost and Settle count something else than requests.
func TestTransportSettleErrors(t *testing.T) {
	lim, _ := newLimiter(t)
	cost := func(*http.Request) int64 { return 1 }
	for name, c := range map[string]struct {
		lim  limit.ContextLimiter
		o    TransportOptions
		text string
	}{
		"cost, follows":   {limit.WithContext(lim), TransportOptions{Cost: cost}, "set Ignore"},
		"settle, follows": {limit.WithContext(lim), TransportOptions{Settle: byCount}, "set Ignore"},
	} {
		if tr, err := NewTransport(c.lim, tenPerSecond, toHost, c.o); tr != nil || err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, o := range []TransportOptions{{Cost: cost, Ignore: true}, {Settle: byCount, Ignore: true}} {
		if _, err := NewTransport(limit.WithContext(lim), tenPerSecond, toHost, o); err != nil {
			t.Error(err)
		}
	}
}
