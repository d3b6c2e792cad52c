package adminlimit

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hybridlimit/hybridlimit/adapter/internal/undecided"
	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/escape"
)

// Page is the handler. Make it with [New]. It may be mounted anywhere: only the last element of the
// path counts. It is safe for concurrent use. The zero Page is not usable.
//
// It keeps a sample of each of the last 600 seconds, in a goroutine that ends within a second after
// the limiter was closed, or with [Page.Close].
type Page struct {
	lim     *hybrid.Limiter
	o       Options
	history *history
	cross   *http.CrossOriginProtection
	lookups gate
	acts    gate
	refused *undecided.Log // acts

	// Many viewers cost as much as one.
	nodes cached[nodeList]
	keys  cached[[]keyRow]
	rows  cached[rulesView]
}

// New returns the page of a limiter.
func New(lim *hybrid.Limiter, o Options) (*Page, error) {
	if lim == nil {
		return nil, errors.New("adminlimit: the limiter is nil")
	}
	if o.Title == "" {
		o.Title = "hybridlimit"
	}
	return &Page{
		lim: lim, o: o, history: startHistory(lim), cross: http.NewCrossOriginProtection(),
		refused: undecided.New(o.Logger, clock.System{}, "adminlimit: an act was refused"),
	}, nil
}

// Close stops the sampling. Further calls do nothing. The page still answers.
func (p *Page) Close() { p.history.close() }

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	pages = template.Must(template.New("page").Funcs(template.FuncMap{
		"css":  func() template.CSS { return template.CSS(pageCSS) },
		"js":   func() template.JS { return template.JS(pageJS) },
		"span": span,
		// What tells keys apart, what a form sends whatever bytes they have, and whether people can type them.
		"distinct": escape.Distinct, "exact": strconv.QuoteToASCII, "typeable": typeable,
		"many": func(n int) string { return many(int64(n), "more rule is", "more rules are") },
	}).Parse(pageHTML))

	policy = strings.Join([]string{
		"default-src 'none'", "style-src " + hashOf(pageCSS), "script-src " + hashOf(pageJS), "connect-src 'self'",
		"form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'",
	}, "; ")
)

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// ServeHTTP answers a request.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	if !p.o.hostAllowed(r.Host) {
		http.Error(w, "adminlimit: this page is not served under that host name: see Options.Hosts, or --admin-host of hybridlimit serve", http.StatusForbidden)
		return
	}
	name, isPage := lastOf(r)
	base, isJSON := strings.CutSuffix(name, ".json")
	if !isPage && !isJSON && name != "look" && name != "act" && r.Method != http.MethodPost {
		// Relative addresses lead from a page only if its own ends so.
		w.Header().Set("Location", "./"+url.PathEscape(name)+"/")
		w.WriteHeader(http.StatusPermanentRedirect)
		return
	}
	switch {
	case r.Method == http.MethodPost && (base == "look" || base == "act" || base == "keys" && isJSON):
		p.post(w, r, base, isJSON)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "adminlimit: the method is not allowed", http.StatusMethodNotAllowed)
	case !isJSON:
		p.show(w, r, http.StatusOK, shown{})
	case base == "now":
		writeJSON(w, http.StatusOK, p.now(r.Context(), true))
	case base == "keys" && p.o.HideKeys:
		writeJSON(w, http.StatusForbidden, map[string]string{"error": keysHidden})
	case base == "keys":
		writeJSON(w, http.StatusOK, p.nearest())
	case base == "rules":
		writeJSON(w, http.StatusOK, p.rules())
	default:
		http.NotFound(w, r)
	}
}

// lastOf returns the last element of the path of a request, empty for the page itself.
func lastOf(r *http.Request) (name string, isPage bool) {
	at := r.URL.Path
	if at == "" { // http.StripPrefix has taken all of it
		if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
			at = u.Path
		}
	}
	if at == "" || strings.HasSuffix(at, "/") {
		return "", true
	}
	return path.Base(at), false
}

// shown is what a page shows besides what it always does.
type shown struct {
	Look  *look  // a key that was looked up
	Said  string // the outcome of an act, or what is wrong with what was asked
	Wrong bool   // it is the latter
}

// whole is what the template gets.
type whole struct {
	shown
	Title           string
	Now             now
	Keys            []keyRow
	Rules           rulesView
	HideKeys, Acts  bool
	HasFile, HasNow bool
}

// show writes the page, or with ?part=now that part of it.
func (p *Page) show(w http.ResponseWriter, r *http.Request, status int, s shown) {
	v := whole{shown: s, Title: p.o.Title, Now: p.now(r.Context(), false), HideKeys: p.o.HideKeys, Acts: p.o.Authorise != nil, HasFile: p.o.Rules != nil}
	part := "page"
	if r.URL.Query().Get("part") == "now" {
		part = "part"
	} else {
		v.Rules = p.rules()
		if !p.o.HideKeys {
			v.Keys = p.nearest()
		}
	}
	var text strings.Builder
	if err := pages.ExecuteTemplate(&text, part, v); err != nil {
		http.Error(w, "adminlimit: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text.String()))
}

// typeable reports whether a text field of a form holds a key as it is.
func typeable(key string) bool {
	return utf8.ValidString(key) && !strings.ContainsFunc(key, unicode.IsControl)
}

// freshFor is for how long viewers share what was read.
const freshFor = time.Second

// cached is a value and when it was read. While one viewer reads it, which may ask Redis, the others
// wait for that: each value has a lock of its own, which protects nothing else.
type cached[T any] struct {
	mu    sync.Mutex
	at    time.Duration
	value T
}

// get returns the value, read anew if it is old.
func (c *cached[T]) get(read func() T) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := clock.System{}.Now()
	if c.at == 0 || now-c.at >= freshFor || now < c.at {
		c.value, c.at = read(), now
	}
	return c.value
}

// forget makes the next get read anew.
func (c *cached[T]) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = 0
}
