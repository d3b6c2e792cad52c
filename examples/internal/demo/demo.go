// Package demo has what the examples need around what they show: a Redis and HTTP servers.
package demo

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// Redis is a server of the example's own.
type Redis interface {
	// Addr returns its "host:port", which stays the same.
	Addr() string
	// Kill ends it as a crash does: all data are lost.
	Kill()
	// Restart starts it again, empty.
	Restart() error
	// Close ends it for good.
	Close()
}

// StartRedis starts the redis-server that is installed. If there is none, it says so and
// starts one within this process, which runs the same scripts.
func StartRedis(out io.Writer) (Redis, error) {
	server, err := redistest.Launch(redistest.Options{})
	if err == nil {
		fmt.Fprintln(out, "Redis: a redis-server of its own")
		return server, nil
	}
	if !errors.Is(err, redistest.ErrNotInstalled) {
		return nil, err
	}
	fmt.Fprintln(out, "Redis: redis-server is not installed, so an imitation within this process")
	m, err := miniredis.Run()
	return embedded{m}, err
}

// embedded is a Redis within this process.
type embedded struct{ *miniredis.Miniredis }

// Kill implements [Redis].
func (e embedded) Kill() {
	e.FlushAll()
	e.Close()
}

// Serve serves h on a free loopback port. It returns the URL, and what ends the server.
func Serve(h http.Handler) (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // http.ErrServerClosed, after Shutdown
	}()
	return "http://" + listener.Addr().String(), func() {
		_ = server.Close()
		<-ended
	}, nil
}
