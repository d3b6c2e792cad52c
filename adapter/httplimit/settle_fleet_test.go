package httplimit

import (
	"bytes"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hybridlimit/hybridlimit/hybridtest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Many requests at once, over real connections: nothing is lost and nothing is booked twice.
func TestSettleSumsAreExact(t *testing.T) {
	const clients, requests, limitOf = 16, 40, 1_000_000
	f := hybridtest.New(t, hybridtest.Options{})
	alone, _ := newLimiter(t)
	rule := perMinute("tokens", limitOf)
	for _, lim := range []memory{alone, f.Limiter} {
		h := protect(t, lim, Options{Headers: NoHeaders}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			n, _ := strconv.ParseInt(r.URL.Path[1:], 10, 64)
			var all sync.WaitGroup
			for range n { // counted by several goroutines
				all.Go(func() { Count(r.Context(), 2) })
			}
			all.Wait()
			if n%7 == 0 {
				panic(http.ErrAbortHandler)
			}
		}), Limit{Rule: rule, Key: By(byKey), Cost: func(*http.Request) int64 { return 20 }, Settle: byCount})
		var all sync.WaitGroup
		var want int64
		for c := range clients {
			for i := range requests {
				want += 2 * int64((c*i)%23)
			}
			all.Go(func() {
				for i := range requests {
					serveOnce(h, httptest.NewRequest(http.MethodGet, fmt.Sprint("/", (c*i)%23), nil))
				}
			})
		}
		all.Wait()
		if left := lim.Peek("k", rule).Remaining; left != limitOf-want {
			t.Errorf("%T: %d units count, want %d", lim, limitOf-left, want)
		}
	}
}

// One request within another: both hear what is byCount. Outside of any nothing happens.
func TestCountOfNestedMiddlewares(t *testing.T) {
	lim, _ := newLimiter(t)
	l := newLedger(lim)
	key := func(name string) KeyFunc { return By(func(*http.Request) string { return name }) }
	inner := protectBy(t, l, Options{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { Count(r.Context(), 3) }),
		Limit{Rule: perMinute("inner", 100), Key: key("inner"), Settle: byCount})
	h := protectBy(t, l, Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 2 { // a batch
			inner.ServeHTTP(w, r)
		}
		Count(r.Context(), 100)
		Count(r.Context(), -50)
	}), Limit{Rule: perMinute("outer", 100), Key: key("outer"), Settle: byCount})
	serveOnce(h, ask())
	if got := fmt.Sprint(l.booked); got != "[charge inner 2 charge inner 2 charge outer 55]" {
		t.Errorf("booked %s", got)
	}
	Count(t.Context(), 5)
}

// The handler gets a request of its own. What others look for in theirs is there: the server removes
// the files of a form, and a middleware around this one reads the pattern.
func TestRequestIsHandedBack(t *testing.T) {
	lim, _ := newLimiter(t)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{id}", func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
		}
	})
	var settled string
	limits := Limit{Rule: perMinute("r", 9), Key: By(byKey), Settle: func(r *http.Request, a Answer) int64 { settled = r.PathValue("id"); return a.Taken }}
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	file, err := form.CreateFormFile("f", "f")
	if err != nil {
		t.Fatal(err)
	}
	file.Write(make([]byte, 100_000))
	form.Close()
	r := httptest.NewRequest(http.MethodPost, "/seven", &body)
	r.Header.Set("Content-Type", form.FormDataContentType())
	serveOnce(protect(t, lim, Options{}, mux, limits), r)
	if r.Pattern != "POST /{id}" || r.MultipartForm == nil || settled != "seven" {
		t.Fatalf("%q, %v, settled for %q", r.Pattern, r.MultipartForm, settled)
	}
	if err := r.MultipartForm.RemoveAll(); err != nil {
		t.Error(err)
	}
}

// noCharge is a limiter that cannot be charged. So is a Limiter that has no more than it must.
type (
	noCharge struct{ memory }
	noMoreOf struct{ Limiter }
)

// A limiter that cannot charge is refused for a limit that settles, and is good for others.
func TestSettleNeedsCharge(t *testing.T) {
	lim, _ := newLimiter(t)
	one := Limit{Rule: perMinute("r", 1), Key: By(byKey)}
	with := one
	with.Settle = byCount
	for _, l := range []Limiter{limit.WithContext(noCharge{lim}), noMoreOf{limit.WithContext(lim)}} {
		if m, err := NewAll(l, Options{}, one, with); m != nil || err == nil || !errors.Is(err, errNoCharge) || !strings.Contains(err.Error(), "limit 1: ") {
			t.Errorf("%T: %v", l, err)
		}
		if _, err := NewAll(l, Options{}, one); err != nil {
			t.Errorf("%T: %v", l, err)
		}
	}
	if _, err := NewAll(limit.WithContext(lim), Options{}, with); err != nil {
		t.Error(err)
	}
	if _, err := NewAll(nil, Options{}, with); err == nil || strings.Contains(err.Error(), errNoCharge.Error()) {
		t.Errorf("%v", err)
	}
}
