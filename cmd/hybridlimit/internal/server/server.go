package server

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/adapter/adminlimit"
	"github.com/hybridlimit/hybridlimit/adapter/promlimit"
	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/fresh"
	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/ops"
	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/resp"
	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/rls"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// Server is the servers that answer for one limiter and one rules file. Make it with [Start].
type Server struct {
	o       Options
	file    *rules.File
	lim     *hybrid.Limiter
	fresh   *fresh.Fetcher
	service *rls.Service // nil: neither gRPC nor checks
	grpc    *grpc.Server // nil: no gRPC
	callers *conns       // of grpc
	health  *health.Server
	streams context.Context    // of calls that do not end by themselves
	end     context.CancelFunc // of streams
	resp    *resp.Server       // nil: no RESP
	checks  *checks            // nil: no checks
	http    *http.Server       // nil: no HTTP
	page    *adminlimit.Page   // of http

	stopping atomic.Bool
	serving  sync.WaitGroup
	failed   chan error // the first server that ended without having been asked
}

const (
	maxMessage = 256 << 10        // bounds a request of the rate limit service
	opsTimeout = 10 * time.Second // bounds how long a request of an operator may take to arrive
	ageGrace   = time.Minute      // for calls on a connection that is too old; only those that watch take any time
)

// Start loads the rules, makes the limiter and serves. It does not wait for Redis.
func Start(o Options) (*Server, error) {
	s := &Server{o: o.withDefaults(), failed: make(chan error, 1)}
	s.streams, s.end = context.WithCancel(context.Background())
	if err := s.begin(); err != nil {
		s.abandon()
		return nil, err
	}
	s.serve()
	return s, nil
}

// begin makes all that serves.
func (s *Server) begin() (err error) {
	if err := s.o.validate(); err != nil {
		return err
	}
	// Before the limiter, which connects to Redis and says so.
	if s.file, err = rules.Watch(s.o.RulesPath, RulesFor(s.o.Rules)); err != nil {
		return err
	}
	if s.lim, err = hybrid.New(s.o.Redis, s.o.Limiter); err != nil {
		return err
	}
	s.fresh = fresh.New(s.lim)
	return s.build()
}

// RulesFor returns options for rules files by which a rule that the limiter cannot decide by is a
// mistake, also in a file that comes later.
func RulesFor(o rules.Options) rules.Options {
	var limiter *hybrid.Limiter // what it can decide by does not depend on its options
	o.Check = limiter.CheckRule
	return o
}

// abandon closes what a failed Start has opened.
func (s *Server) abandon() {
	s.end()
	if s.file != nil {
		s.file.Close()
	}
	if s.fresh != nil {
		s.fresh.Close()
	}
	if s.page != nil {
		s.page.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.o.StopTimeout)
	defer cancel()
	_ = s.lim.Shutdown(ctx) // of nil: nothing
	for _, ln := range []interface{ Close() error }{s.o.GRPC, s.o.RESP, s.o.Check, s.o.HTTP} {
		if ln != nil {
			_ = ln.Close()
		}
	}
	if s.o.Redis != nil {
		_ = s.o.Redis.Close()
	}
}

// build makes the servers.
func (s *Server) build() error {
	o := s.o
	metrics := &ops.Metrics{File: s.file}
	if o.GRPC != nil || o.Check != nil {
		service, err := rls.New(rls.Options{Limiter: s.lim, Rules: s.file.Set, Look: s.fresh.Look, ChargeRefused: o.ChargeRefused, Shadow: o.Shadow, Headers: o.Headers})
		if err != nil {
			return err
		}
		s.service, metrics.RLS = service, service
	}
	if o.GRPC != nil {
		s.buildGRPC()
	}
	if o.Check != nil {
		s.checks = newChecks(o, s.service)
	}
	if o.RESP != nil {
		server, err := resp.New(resp.Options{
			Limiter: s.lim, Rules: s.file.Set, Look: s.fresh.Look, Password: o.RESPPassword, TLS: o.TLS, MaxConns: o.RESPMaxConns, IdleTimeout: o.RESPIdleTimeout,
			Logger: o.Logger,
		})
		if err != nil {
			return err
		}
		s.resp, metrics.RESP = server, server
	}
	if o.HTTP == nil {
		return nil
	}
	registry := prometheus.NewRegistry()
	err := errors.Join(
		promlimit.Register(registry, "serve", s.lim),
		registry.Register(metrics),
		registry.Register(collectors.NewGoCollector()),
		registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
	)
	if err != nil {
		return err
	}
	if s.page, err = adminlimit.New(s.lim, o.Admin.options(s.file, o.Logger)); err != nil {
		return err
	}
	ready := func() ops.Ready { return ops.Check(s.lim, s.file, s.stopping.Load()) }
	s.http = &http.Server{Handler: ops.Handler(ready, registry, s.page), ReadTimeout: opsTimeout, WriteTimeout: 2 * opsTimeout, IdleTimeout: 2 * time.Minute}
	return nil
}

// options returns those of the page.
func (a Admin) options(file *rules.File, log *slog.Logger) adminlimit.Options {
	o := adminlimit.Options{Title: "hybridlimit serve", Hosts: a.Hosts, HideKeys: !a.Keys, Rules: file, Logger: log}
	if a.Password != "" {
		o.Authorise = func(r *http.Request) (who string, ok bool) {
			name, password, _ := r.BasicAuth()
			return name, subtle.ConstantTimeCompare([]byte(password), []byte(a.Password)) == 1
		}
	}
	return o
}

// buildGRPC makes the server of gRPC.
func (s *Server) buildGRPC() {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage), grpc.StreamInterceptor(s.untilStop),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: s.o.GRPCMaxAge, MaxConnectionAgeGrace: ageGrace}),
	}
	if s.o.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(s.o.TLS)))
	}
	s.grpc, s.health, s.callers = grpc.NewServer(options...), health.NewServer(), track(s.o.GRPC)
	ratelimit.RegisterRateLimitServiceServer(s.grpc, s.service)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	s.health.SetServingStatus(ratelimit.RateLimitService_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
}

// serve starts the servers.
func (s *Server) serve() {
	run := func(name, addr string, serve func() error, more ...any) {
		s.o.Logger.Info("serve: listening", append([]any{"protocol", name, "address", addr}, more...)...)
		s.serving.Go(func() {
			err := serve()
			if s.stopping.Load() {
				return
			}
			if err == nil {
				err = net.ErrClosed
			}
			select {
			case s.failed <- fmt.Errorf("serve: %s: %w", name, err):
			default:
			}
		})
	}
	if s.grpc != nil {
		run("grpc", s.o.GRPC.Addr().String(), func() error { return s.grpc.Serve(s.callers) })
	}
	if s.resp != nil {
		run("resp", s.o.RESP.Addr().String(), func() error { return s.resp.Serve(s.o.RESP) })
	}
	if s.checks != nil {
		run("check", s.o.Check.Addr().String(), s.checks.serve)
	}
	if s.http != nil {
		run("http", s.o.HTTP.Addr().String(), func() error { return s.http.Serve(s.o.HTTP) },
			"page", "/admin/", "page_keys", s.o.Admin.Keys, "page_acts", s.o.Admin.Password != "")
	}
}

// Failed returns a channel with the error of a server that has ended by itself. Call
// [Server.Stop] then.
func (s *Server) Failed() <-chan error { return s.failed }

// Limiter returns the limiter that decides.
func (s *Server) Limiter() *hybrid.Limiter { return s.lim }

// Stop says that the server is not ready any more, goes on for Options.StopDelay, then accepts
// nothing more, answers what it has received, and reports to Redis what is pending. With an
// error something of this was cut off.
func (s *Server) Stop() error {
	s.stopping.Store(true)
	if s.health != nil {
		s.health.Shutdown()
	}
	s.o.Logger.Info("serve: stopping", "delay", s.o.StopDelay.String(), "timeout", s.o.StopTimeout.String())
	s.o.sleep(s.o.StopDelay)
	ctx, cancel := context.WithTimeout(context.Background(), s.o.StopTimeout)
	defer cancel()
	// Clients that do not end must not use up the time for the last reports.
	clients, cut := context.WithTimeout(ctx, s.o.StopTimeout/2)
	defer cut()
	errs := make([]error, 3)
	var drain sync.WaitGroup
	if s.grpc != nil {
		drain.Go(func() { errs[0] = s.stopGRPC(clients) })
	}
	if s.resp != nil {
		drain.Go(func() { errs[1] = s.resp.Stop(clients) })
	}
	if s.checks != nil {
		drain.Go(func() { errs[2] = s.checks.stop(clients) })
	}
	drain.Wait()
	s.fresh.Close()
	errs = append(errs, s.lim.Shutdown(ctx))
	if s.http != nil {
		_ = s.http.Shutdown(ctx) // a scrape or a page that is cut off loses nothing
		_ = s.http.Close()
		s.page.Close()
	}
	s.serving.Wait()
	s.file.Close()
	if s.o.Redis != nil {
		errs = append(errs, s.o.Redis.Close())
	}
	err := errors.Join(errs...)
	if err == nil {
		s.o.Logger.Info("serve: stopped")
	} else {
		s.o.Logger.Error("serve: stopped", "error", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return err
}

// Reload reads the rules file now. A bad one changes nothing.
func (s *Server) Reload() {
	if err := s.file.Reload(); err != nil {
		s.o.Logger.Error("serve: the rules file was read again and is refused", "error", err)
		return
	}
	s.o.Logger.Info("serve: the rules file was read again")
}

// untilStop ends a stream when the server stops. Clients watch the health of a server, or ask what
// it serves, and would do so for ever. With the stream its context ends, and so does what serves it.
func (s *Server) untilStop(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, serve grpc.StreamHandler) error {
	ended := make(chan error, 1)
	go func() { ended <- serve(srv, stream) }()
	select {
	case err := <-ended:
		return err
	case <-s.streams.Done():
		return status.Error(codes.Unavailable, "the server stops")
	}
}

// stopGRPC lets the calls under way end, and cuts them off when ctx ends.
func (s *Server) stopGRPC(ctx context.Context) error {
	s.end()
	done := make(chan struct{})
	go func() { defer close(done); s.grpc.GracefulStop() }()
	s.callers.end(false)
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.callers.end(true)
		s.grpc.Stop()
		<-done
		return fmt.Errorf("serve: calls were cut off: %w", ctx.Err())
	}
}
