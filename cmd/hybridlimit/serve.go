package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/connect"
	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// leastTimeout and mostTimeout bound the command timeout, and mostTimeout what the client waits.
const leastTimeout, mostTimeout = time.Millisecond, time.Minute

// serveCmd is hybridlimit serve. Each flag has a variable, see serveVariables.
type serveCmd struct {
	Rules        string `required:"" type:"path" placeholder:"FILE" help:"Rules file. It is followed: a change applies within a second, a bad file changes nothing."`
	AllowRemoval bool   `help:"Let a file that does not end with '...' remove rules. Only if the file is always replaced as a whole."`

	Alone             bool   `help:"Share with nobody: no Redis, this server has limits of its own."`
	Redis             string `group:"redis" default:"redis://localhost:6379" placeholder:"URL" help:"Redis to share limits through: HOST:PORT, or redis://, rediss:// (TLS) or unix://, with ?master_name= a Sentinel."`
	RedisPasswordFile string `name:"redis-password-file" group:"redis" type:"path" placeholder:"FILE" help:"The password of Redis. It is read again for each connection."`
	Cluster           bool   `group:"redis" help:"That Redis is a Cluster."`
	Prefix            string `group:"redis" default:"hl" help:"Begins every key in Redis; the same for all who share limits."`
	Shards            int    `group:"redis" placeholder:"N" help:"Groups of keys; the same for all who share limits. Default: 1, of a Cluster 64."`
	CA                string `group:"redis" type:"path" placeholder:"FILE" help:"Certificates that sign that of Redis, as PEM. Default: those of the system."`
	Cert              string `group:"redis" type:"path" placeholder:"FILE" help:"Certificate to show to Redis, as PEM, with its --key-file."`
	KeyFile           string `group:"redis" type:"path" placeholder:"FILE" help:"Private key of --cert."`

	Fallback       string        `default:"fair-share" enum:"fair-share,full-limit,fail-open,fail-closed" help:"What decides while Redis is away: ${enum}."`
	ExpectedNodes  int           `help:"How many servers and services share the limits at least."`
	MaxKeys        int           `help:"How many keys are held in memory. Default 65536."`
	MaxRemembered  int           `help:"Of how many keys that had to leave memory it is remembered what they have used, 16 bytes each. Default 32 times max-keys."`
	MaxLag         time.Duration `help:"How long an admitted hit may stay unreported. Default 1s."`
	CommandTimeout time.Duration `default:"250ms" help:"How long a call of Redis may take before it is sent again; five round trips if that is longer, eight times as long at most."`
	PollOnly       bool          `help:"Send and receive no notices of used-up keys: each process learns them from its own reports. The same for all who share limits."`

	GRPC  string `name:"grpc" default:"127.0.0.1:7381" placeholder:"ADDRESS" help:"Where Envoy's rate limit service listens; - for nowhere."`
	RESP  string `name:"resp" default:"127.0.0.1:6380" placeholder:"ADDRESS" help:"Where Redis clients are served; - for nowhere."`
	Check string `name:"check" default:"127.0.0.1:7382" placeholder:"ADDRESS" help:"Where programs post checks as JSON, to /check; - for nowhere."`
	HTTP  string `name:"http" default:"127.0.0.1:7380" placeholder:"ADDRESS" help:"Where /healthz, /readyz, /metrics and the page /admin/ are; - for nowhere."`

	AdminKeys     bool     `name:"admin-keys" help:"Show keys on the page, which may be personal, to whoever can reach it."`
	AdminPassword string   `name:"admin-password" placeholder:"TEXT" help:"Allow changes on the page, to whoever knows this password. Better set in the environment."`
	AdminHost     []string `name:"admin-host" placeholder:"NAME" help:"Host names under which the page may be asked for, besides localhost."`

	GRPCMaxAge   time.Duration `name:"grpc-max-age" default:"30m" help:"How old a connection of gRPC gets, give or take a tenth, so that clients spread anew; 0 is any age."`
	RESPPassword string        `name:"resp-password" placeholder:"TEXT" help:"What Redis clients must send with AUTH. Better set in the environment."`
	RESPMaxConns int           `name:"resp-max-conns" help:"How many connections of Redis clients there may be. Default 10000."`
	RESPIdle     time.Duration `name:"resp-idle-timeout" default:"10m" help:"How long a connection of a Redis client may be silent; 0 is for ever."`
	TLSCert      string        `name:"tls-cert" type:"path" placeholder:"FILE" help:"Certificate chain for gRPC, RESP and checks."`
	TLSKey       string        `name:"tls-key" type:"path" placeholder:"FILE" help:"Its private key."`
	TLSClientCA  string        `name:"tls-client-ca" type:"path" placeholder:"FILE" help:"Ask clients for a certificate of this authority."`

	ChargeRefused   bool `help:"A request of several hits that is refused counts all the same, as a debt. Needed for Envoy's apply_on_stream_done."`
	Shadow          bool `help:"Answer OK to every request of Envoy and every check, and count what would have been refused."`
	ResponseHeaders bool `help:"Add RateLimit headers to the answers for Envoy."`

	StopDelay   time.Duration `default:"0s" help:"How long to go on after SIGTERM while /readyz says no."`
	StopTimeout time.Duration `default:"10s" help:"How long the end may take after that, last reports to Redis included."`
	LogLevel    slog.Level    `default:"info" placeholder:"LEVEL" help:"debug, info, warn or error. Lines are JSON, on standard error."`
}

// Help is shown by hybridlimit serve --help.
func (serveCmd) Help() string { return "See docs/server.md." }

// Run serves until the program is told to end. Its signals are taken first: each of them may
// come before the server is ready.
func (c *serveCmd) Run(p *program) error {
	// Without this a write to a log that has no reader any more ends the program.
	signal.Ignore(syscall.SIGPIPE)
	hangup := make(chan os.Signal, 1) // one that waits is enough: the file is read after it
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	lines := newLogWriter(p.errOut)
	defer lines.close()
	log := slog.New(slog.NewJSONHandler(lines, &slog.HandlerOptions{Level: c.LogLevel}))
	// Before anything else is done or said: a file with a mistake is the usual reason not to start.
	if _, err := server.RulesFor(rules.Options{}).Load(c.Rules); err != nil {
		var list rules.Problems
		if errors.As(err, &list) && list[0].Line == 0 { // it cannot be read
			return usage(fmt.Errorf("--rules: %w", err))
		}
		return usage(fmt.Errorf("--rules: the file is not valid\n%w", err))
	}
	o, err := c.options(log)
	if err != nil {
		return usage(err)
	}
	s, err := server.Start(o)
	if err != nil {
		return usage(err)
	}
	for {
		select {
		case <-hangup:
			s.Reload()
		case <-p.ctx.Done():
			return logged(s.Stop())
		case err := <-s.Failed():
			log.Error("serve: a server has ended", "error", err)
			_ = s.Stop()
			return logged(err)
		}
	}
}

// logged returns an error that is in the log, so that it is not said a second time, as text
// between lines of JSON.
func logged(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: exitFailed}
}

// options makes the options of the server, and opens its sockets.
func (c *serveCmd) options(log *slog.Logger) (o server.Options, err error) {
	o = server.Options{
		RulesPath: c.Rules, Rules: rules.Options{AllowRemoval: c.AllowRemoval},
		Limiter: hybrid.Options{
			KeyPrefix: c.Prefix, Shards: c.Shards, ExpectedNodes: c.ExpectedNodes, MaxKeys: c.MaxKeys, MaxRemembered: c.MaxRemembered, MaxLag: c.MaxLag, CommandTimeout: c.CommandTimeout, PollOnly: c.PollOnly,
		},
		GRPCMaxAge: c.GRPCMaxAge, RESPPassword: c.RESPPassword, RESPMaxConns: c.RESPMaxConns, RESPIdleTimeout: c.RESPIdle,
		ChargeRefused: c.ChargeRefused, Shadow: c.Shadow, Headers: c.ResponseHeaders,
		Admin:     server.Admin{Keys: c.AdminKeys, Password: c.AdminPassword, Hosts: c.AdminHost},
		StopDelay: c.StopDelay, StopTimeout: c.StopTimeout, Logger: log,
	}
	if err := o.Limiter.Fallback.UnmarshalText([]byte(c.Fallback)); err != nil {
		return o, err
	}
	if c.CommandTimeout < leastTimeout || c.CommandTimeout > mostTimeout {
		return o, fmt.Errorf("--command-timeout is %v, must be %v to %v", c.CommandTimeout, leastTimeout, mostTimeout)
	}
	if o.TLS, err = c.tls(log); err != nil {
		return o, err
	}
	if !c.Alone {
		flags := connect.Flags{
			Redis: c.Redis, Cluster: c.Cluster, Timeout: min(redisstore.MostPatience*c.CommandTimeout, mostTimeout), Prefix: c.Prefix, Shards: c.Shards,
			PasswordFile: c.RedisPasswordFile, CA: c.CA, Cert: c.Cert, KeyFile: c.KeyFile,
		}
		target, err := flags.Open()
		if err != nil {
			return o, err
		}
		o.Redis = target.UniversalClient
	}
	for _, at := range []struct {
		flag, addr string
		into       *net.Listener
	}{{"--grpc", c.GRPC, &o.GRPC}, {"--resp", c.RESP, &o.RESP}, {"--check", c.Check, &o.Check}, {"--http", c.HTTP, &o.HTTP}} {
		if at.addr == "-" {
			continue
		}
		if *at.into, err = net.Listen("tcp", at.addr); err != nil {
			return o, cannotListen(at.flag, err) // the program ends, and the sockets with it
		}
	}
	return o, nil
}

// cannotListen says whether a flag is wrong, or the machine does not allow now what it says,
// as when another program has the port: then the same command may work later.
func cannotListen(flag string, err error) error {
	err = fmt.Errorf("%s: %w", flag, err)
	var bad *net.AddrError
	var name *net.DNSError
	if errors.As(err, &bad) || errors.As(err, &name) && name.IsNotFound {
		return usage(err)
	}
	return &exitError{exitFailed, err}
}

// tls reads the certificates; nil if there are none.
func (c *serveCmd) tls(log *slog.Logger) (*tls.Config, error) {
	if c.TLSCert == "" && c.TLSKey == "" && c.TLSClientCA == "" {
		return nil, nil
	}
	files, err := openCertificates(c.TLSCert, c.TLSKey, c.TLSClientCA, log)
	if err != nil {
		return nil, err
	}
	return files.server(), nil
}
