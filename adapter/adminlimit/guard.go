package adminlimit

import (
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
)

// protect sets the headers of every answer: nothing is loaded from elsewhere, shown in a frame of
// another page, kept by a cache, or told to the next page.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
}

func isLoopback(name string) bool {
	ip := net.ParseIP(name)
	return ip != nil && ip.IsLoopback()
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(w, "adminlimit: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}

// Look-ups and acts ask Redis: there are gateBurst at once, and then one each gateEvery.
const (
	gateBurst = 10
	gateEvery = 200 * time.Millisecond
)

// gate bounds how often something happens.
type gate struct {
	mu   sync.Mutex
	full time.Duration // when the whole burst is admitted again, on the system's clock
}

// pass reports whether it may happen now.
func (g *gate) pass() bool {
	now := clock.System{}.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	full := max(g.full, now) + gateEvery
	if full > now+gateBurst*gateEvery {
		return false
	}
	g.full = full
	return true
}
