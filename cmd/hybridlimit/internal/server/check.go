package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/check"
)

const (
	checkTimeout   = 10 * time.Second // for a request, and for taking the answer
	maxCheckHeader = 16 << 10
)

// checks serves package check.
type checks struct {
	http    *http.Server
	ln      net.Listener
	callers *conns // of ln
}

func newChecks(o Options, service check.Service) *checks {
	c := &checks{callers: track(o.Check)}
	if c.ln = c.callers; o.TLS != nil {
		c.ln = tls.NewListener(c.callers, o.TLS)
	}
	c.http = &http.Server{
		Handler: check.Handler(service, maxMessage), MaxHeaderBytes: maxCheckHeader,
		ReadHeaderTimeout: checkTimeout, ReadTimeout: checkTimeout, WriteTimeout: 2 * checkTimeout, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug), // what clients do wrong
	}
	return c
}

func (c *checks) serve() error { return c.http.Serve(c.ln) }

// stop lets the requests under way end, and cuts them off when ctx ends. Clients that have sent
// nothing are cut off at once: the library waits for them.
func (c *checks) stop(ctx context.Context) error {
	c.callers.end(false)
	if err := c.http.Shutdown(ctx); err != nil {
		_ = c.http.Close()
		return fmt.Errorf("serve: checks were cut off: %w", err)
	}
	return nil
}
