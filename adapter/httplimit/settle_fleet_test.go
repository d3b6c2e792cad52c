package httplimit

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

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

// Charged units reach Redis, and the other processes refuse for them.
func TestSettleForTheFleet(t *testing.T) {
	f := hybridtest.New(t, hybridtest.Options{Limiters: 2})
	rule := limit.Must(limit.TokenBucket("tokens", limit.Tokens{Burst: 100, Refill: 100, Per: time.Hour}))
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { Count(r.Context(), 150) })
	one := protect(t, f.Limiters[0], Options{Clock: f.Clock}, handler, Limit{Rule: rule, Key: By(byKey), Settle: byCount})
	two := protect(t, f.Limiters[1], Options{Clock: f.Clock}, handler, Limit{Rule: rule, Key: By(byKey), Settle: byCount})
	if w, _ := serveOnce(one, ask()); w.Code != 200 {
		t.Fatal(w.Code)
	}
	f.Sync()
	f.Preload([]string{"k"}, rule)
	if w, _ := serveOnce(two, ask()); w.Code != 429 || w.Header().Get("Retry-After") != "1836" {
		t.Errorf("another process: %d, %v", w.Code, w.Header())
	}
}

// A limiter that asks Redis is charged, too; one that cannot be asked fails no request.
func TestSettleRemote(t *testing.T) {
	lim, redisServer := newRemote(t)
	rule := perMinute("tokens", 100)
	var text bytes.Buffer
	h := protectBy(t, lim, Options{Logger: slog.New(slog.NewTextHandler(&text, nil))}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := strconv.ParseInt(r.URL.Path[1:], 10, 64)
		if Count(r.Context(), n); n == 77 {
			redisServer.Close()
		}
	}), Limit{Rule: rule, Key: By(byKey), Cost: func(*http.Request) int64 { return 10 }, Settle: byCount})
	for _, c := range []struct{ cost, left int64 }{{30, 70}, {0, 70}, {10, 60}, {77, -1}} {
		w, _ := serveOnce(h, httptest.NewRequest(http.MethodGet, fmt.Sprint("/", c.cost), nil))
		if res, err := lim.Peek(t.Context(), "k", rule); w.Code != 200 || c.left >= 0 && (err != nil || res.Remaining != c.left) {
			t.Errorf("cost %d: %d, %+v, %v", c.cost, w.Code, res, err)
		}
	}
	if got := text.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "a cost cannot be settled") {
		t.Errorf("the log is %q", got)
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

// Handlers of a limit without Settle get the server's own writer and request, at no more cost.
func TestNoSettleCostsNothing(t *testing.T) {
	lim, _ := newLimiter(t)
	r := ask()
	r.Header.Set("Key", "k")
	for name, l := range map[string]Limit{
		"no Settle":     {Rule: perMinute("r", 5), Key: By(byKey)},
		"not limited":   {RuleFor: func(*http.Request) *limit.Rule { return limit.Unlimited() }, Key: By(byKey), Settle: byCount},
		"with a charge": {Rule: perMinute("r", 5), Key: By(byKey), Settle: byCount},
	} {
		w := httptest.NewRecorder()
		protect(t, lim, Options{}, http.HandlerFunc(func(got http.ResponseWriter, of *http.Request) {
			if own := got == http.ResponseWriter(w) && of == r; own != (name != "with a charge") {
				t.Errorf("%s: got %T", name, got)
			}
		}), l).ServeHTTP(w, r)
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
