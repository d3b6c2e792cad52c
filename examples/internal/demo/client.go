package demo

import (
	"context"
	"io"
	"net/http"
)

// Client sends requests as a balancer passes them on: it says in X-Forwarded-For whom they
// are from. The zero value is ready to use. Close it.
type Client struct{ transport http.Transport }

// Answer is what a server has answered.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Get asks for a URL as a user, whose password is empty, from an address.
func (c *Client) Get(ctx context.Context, url, user, from string) (Answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Answer{}, err
	}
	r.SetBasicAuth(user, "")
	r.Header.Set("X-Forwarded-For", from)
	resp, err := c.transport.RoundTrip(r)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return Answer{resp.StatusCode, resp.Header, string(body)}, err
}

// Close closes the connections that are idle.
func (c *Client) Close() { c.transport.CloseIdleConnections() }
