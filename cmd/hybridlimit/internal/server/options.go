package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// Options says what to serve and where. RulesPath and at least one of GRPC, RESP and Check are
// required.
type Options struct {
	// RulesPath is the rules file, and Rules how it is followed.
	RulesPath string
	Rules     rules.Options
	// Redis is what the limit is shared through; nil: each server has limits of its own. It is
	// closed by [Server.Stop].
	Redis   redis.UniversalClient
	Limiter hybrid.Options

	// GRPC, RESP, Check and HTTP are the listeners; nil: there is no such server. They are closed by
	// [Server.Stop], or by [Start] if that fails. Check is for package check, HTTP for package ops.
	GRPC, RESP, Check, HTTP net.Listener
	// TLS is for GRPC, RESP and Check. Default: no TLS.
	TLS *tls.Config
	// GRPCMaxAge is how old a connection of gRPC gets, give or take a tenth. Clients behind a
	// balancer then find servers that are new. Default 0: any age.
	GRPCMaxAge time.Duration

	RESPPassword    string
	RESPMaxConns    int           // default 10,000
	RESPIdleTimeout time.Duration // default 0: never

	ChargeRefused, Shadow, Headers bool // see the options of package rls

	// Admin is for the page /admin/ of HTTP.
	Admin Admin

	// StopDelay is how long the server goes on to answer after it has said that it is not ready
	// any more, so that balancers and Envoys can notice. Default 0.
	StopDelay time.Duration
	// StopTimeout bounds everything that follows: requests under way, and the last reports to
	// Redis. Default 10 s.
	StopTimeout time.Duration

	Logger *slog.Logger // default: none

	sleep func(time.Duration) // for StopDelay, of tests
}

// Admin says what the page shows, and what may be done there. The zero Admin shows no keys and
// changes nothing.
type Admin struct {
	Keys     bool
	Password string   // of acts; empty: there are none
	Hosts    []string // see Options.Hosts of package adminlimit
}

const defaultStopTimeout = 10 * time.Second

func (o Options) withDefaults() Options {
	if o.StopTimeout == 0 {
		o.StopTimeout = defaultStopTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.sleep == nil {
		o.sleep = time.Sleep
	}
	if o.Limiter.Logger == nil {
		o.Limiter.Logger = o.Logger
	}
	if o.Rules.Logger == nil {
		o.Rules.Logger = o.Logger
	}
	return o
}

// validate reports every bad option at once.
func (o Options) validate() error {
	var errs []error
	if o.RulesPath == "" {
		errs = append(errs, errors.New("server: a rules file is required"))
	}
	if o.GRPC == nil && o.RESP == nil && o.Check == nil {
		errs = append(errs, errors.New("server: an address for gRPC, RESP or checks is required"))
	}
	for name, d := range map[string]time.Duration{"StopDelay": o.StopDelay, "StopTimeout": o.StopTimeout} {
		if d < 0 || d > time.Hour {
			errs = append(errs, fmt.Errorf("server: Options.%s is %v, must be 0 to 1h", name, d))
		}
	}
	if o.GRPCMaxAge < 0 {
		errs = append(errs, fmt.Errorf("server: Options.GRPCMaxAge is %v, must be 0 or more", o.GRPCMaxAge))
	}
	return errors.Join(errs...)
}
