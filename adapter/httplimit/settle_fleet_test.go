package httplimit

import (
	"errors"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/limit"
)

// The handler gets a request of its own. What others look for in theirs is there: the server removes
// the files of a form, and a middleware around this one reads the pattern.
func TestRequestIsHandedBack(t *testing.T) {
	lim, _ := newLimiter(t)
	mux := http.NewServeMux()
	form := new(multipart.Form)
	mux.HandleFunc("POST /{id}", func(_ http.ResponseWriter, r *http.Request) { r.MultipartForm = form })
	var settled string
	limits := Limit{Rule: perMinute("r", 9), Key: By(byKey), Settle: func(r *http.Request, a Answer) int64 { settled = r.PathValue("id"); return a.Taken }}
	r := httptest.NewRequest(http.MethodPost, "/seven", nil)
	serveOnce(protect(t, lim, Options{}, mux, limits), r)
	if r.Pattern != "POST /{id}" || r.MultipartForm != form || settled != "seven" {
		t.Errorf("%q, %v, settled for %q", r.Pattern, r.MultipartForm, settled)
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
