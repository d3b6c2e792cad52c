package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/screen"
)

const (
	// readyTimeout is how long an answer may take.
	readyTimeout = 2 * time.Second
	// mostReason bounds what is shown of an answer, in bytes.
	mostReason = 1 << 10
)

// readyCmd is hybridlimit ready.
type readyCmd struct {
	URL string `arg:"" optional:"" name:"url" default:"http://127.0.0.1:7380/readyz" help:"What to ask: a URL, or HOST:PORT. Default ${default}."`
}

// Help is shown by hybridlimit ready --help.
func (readyCmd) Help() string {
	return "For containers without a shell. Exit codes: 0 for an answer of 200 within 2s, 1 for all else."
}

// readyJSON is the answer for programs.
type readyJSON struct {
	URL   string `json:"url"`
	Ready bool   `json:"ready"`
	Why   string `json:"why,omitempty"` // it is not ready
}

// Run asks a server whether it is ready.
func (c *readyCmd) Run(p *program) error {
	text := c.URL
	if host, _, err := net.SplitHostPort(text); err == nil && host != "" && !strings.Contains(text, "/") { // HOST:PORT
		text = "http://" + text + "/readyz"
	}
	u, err := url.Parse(text)
	switch {
	case err != nil: // its text has the URL in it, and that may have a password
		return usage(fmt.Errorf("the URL cannot be used: %w", cause(err)))
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return usage(fmt.Errorf("%s is no URL like http://127.0.0.1:7380/readyz", u.Redacted()))
	}
	out := readyJSON{URL: u.Redacted()}
	if err := ask(p.ctx, u); err != nil {
		out.Why = err.Error()
	}
	out.Ready = out.Why == ""
	switch {
	case p.JSON:
		err = p.Object(out)
	case out.Ready:
		err = p.Line(screen.Plain, 2, "%s is ready", screen.Clean(out.URL))
	default:
		err = p.Line(screen.Plain, 2, "%s is not ready: %s", screen.Clean(out.URL), screen.Clean(out.Why))
	}
	if err == nil && !out.Ready {
		return found
	}
	return err
}

// ask returns why a server is not ready. It goes there directly, and follows to nowhere else:
// the answer of a proxy is not that of the server.
func ask(ctx context.Context, u *url.URL) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return cause(err)
	}
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return cause(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, mostReason)) // the status is enough
	return fmt.Errorf("%s: %s", resp.Status, text)
}

// cause returns an error without the URL that package url adds.
func cause(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v", readyTimeout)
	}
	if wrapped := new(url.Error); errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}
