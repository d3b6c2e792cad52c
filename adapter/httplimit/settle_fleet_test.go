package httplimit

import (
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"testing"
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
