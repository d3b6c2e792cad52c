// Package connect makes a client of Redis from what a command line says.
package connect

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/remote"
)

// Flags says which Redis, as flags of kong.
type Flags struct {
	Redis        string        `group:"redis" env:"HYBRIDLIMIT_REDIS" default:"redis://localhost:6379" placeholder:"URL" help:"Where Redis is: HOST:PORT, or redis://, rediss:// (TLS) or unix://, with ?master_name= a Sentinel."`
	Cluster      bool          `group:"redis" env:"HYBRIDLIMIT_CLUSTER" help:"That Redis is a Cluster."`
	Timeout      time.Duration `group:"redis" env:"HYBRIDLIMIT_TIMEOUT" default:"2s" help:"How long one command may take, 1ms to 1m."`
	Prefix       string        `group:"redis" env:"HYBRIDLIMIT_PREFIX" default:"hl" help:"KeyPrefix of the limiters."`
	Shards       int           `group:"redis" env:"HYBRIDLIMIT_SHARDS" placeholder:"N" help:"Shards of the limiters. Default: 1, of a Cluster 64."`
	PasswordFile string        `group:"redis" name:"redis-password-file" env:"HYBRIDLIMIT_REDIS_PASSWORD_FILE" type:"path" placeholder:"FILE" help:"The password of Redis. It is read again for each connection."`
	CA           string        `group:"redis" env:"HYBRIDLIMIT_CA" type:"path" placeholder:"FILE" help:"Certificates that sign that of Redis, as PEM. Default: those of the system."`
	Cert         string        `group:"redis" env:"HYBRIDLIMIT_CERT" type:"path" placeholder:"FILE" help:"Certificate to show, as PEM, with its --key-file."`
	KeyFile      string        `group:"redis" env:"HYBRIDLIMIT_KEY_FILE" type:"path" placeholder:"FILE" help:"Private key of --cert."`
}

// Bounds of [Flags].Timeout.
const (
	leastTimeout = time.Millisecond
	mostTimeout  = time.Minute
)

// Target is a Redis to talk to.
type Target struct {
	redis.UniversalClient
	// Name is what it is called in messages: without a password.
	Name string
	// Encrypted tells whether TLS is spoken, Local whether nothing leaves the machine.
	Encrypted, Local bool
	// Password tells whether one is sent.
	Password bool
	// Cluster tells that the client is one of a Cluster.
	Cluster bool
}

// Options returns the options for limiters.
func (f Flags) Options() remote.Options {
	return remote.Options{KeyPrefix: f.Prefix, Shards: f.Shards, CommandTimeout: f.Timeout}
}

// errURL says nothing of what was given: it may have a password in it.
var errURL = errors.New("--redis is neither HOST:PORT nor a URL such as redis://:password@host:6379/0, rediss://host:6379 or unix:///run/redis.sock (escape what is special in a password: %2F for a slash)")

// Open returns a client, which the caller must close. It does not talk to Redis yet. The
// error is about the flags, and never has a password in it.
func (f Flags) Open() (*Target, error) {
	if !strings.Contains(f.Redis, "://") && !strings.HasPrefix(f.Redis, "unix:") {
		f.Redis = "redis://" + f.Redis
	}
	u, err := url.Parse(f.Redis)
	if err != nil || !isWhole(u) {
		return nil, errURL
	}
	if f.Timeout < leastTimeout || f.Timeout > mostTimeout {
		return nil, fmt.Errorf("--timeout is %v, must be %v to %v", f.Timeout, leastTimeout, mostTimeout)
	}
	password, _ := u.User.Password()
	inQuery := u.Query().Get("password")
	sent := password+inQuery != ""
	if f.PasswordFile != "" {
		// With a Sentinel the one before the host is that of the Sentinels.
		if inQuery != "" || password != "" && !u.Query().Has("master_name") {
			return nil, errors.New("--redis has a password, and so has --redis-password-file: give one")
		}
		if _, err := readPassword(f.PasswordFile); err != nil {
			return nil, err
		}
		sent = true
	}
	t := &Target{Name: name(u), Encrypted: u.Scheme == "rediss", Local: isLocal(u), Password: sent, Cluster: f.Cluster}
	switch {
	case f.Cluster && u.Query().Has("master_name"):
		return nil, errors.New("--redis names the master of a Sentinel: that is no --cluster")
	case f.Cluster:
		t.UniversalClient, err = f.cluster()
	case u.Query().Has("master_name"):
		t.Name = fmt.Sprintf("master %s of the Sentinel at %s", u.Query().Get("master_name"), t.Name)
		t.UniversalClient, err = f.sentinel()
	default:
		t.UniversalClient, err = f.single()
	}
	if err != nil && strings.Contains(u.RawQuery, "@") {
		return nil, errURL // what follows a ? may be the rest of a password
	}
	if err != nil {
		return nil, fmt.Errorf("--redis: %s", strings.TrimPrefix(err.Error(), "redis: "))
	}
	return t, nil
}

// isWhole reports whether a URL has its parts where they belong. A password such as 12/34 or
// 12#34 that is not escaped makes its beginning a port, and its end part of what errors show.
func isWhole(u *url.URL) bool {
	if u.Scheme == "unix" {
		return u.Host == "" && u.Path != "" && u.Fragment == ""
	}
	colons := strings.Contains(u.Hostname(), ":") // of an IPv6 address, or of what is no host: rediss:host:6379
	return u.Host != "" && colons == strings.HasPrefix(u.Host, "[") && !strings.Contains(u.Path, "@") && u.Fragment == ""
}

// name returns where a Redis is, without who connects.
func name(u *url.URL) string {
	if u.Scheme == "unix" {
		return u.Path
	}
	if u.Port() == "" {
		return u.Hostname() + ":6379"
	}
	return u.Host
}

func isLocal(u *url.URL) bool {
	switch u.Hostname() {
	case "localhost", "127.0.0.1", "::1":
		return true
	}
	return u.Scheme == "unix"
}

// Nothing is sent twice, and a server that is not there is given up at once: somebody
// waits.

func (f Flags) single() (redis.UniversalClient, error) {
	o, err := redis.ParseURL(f.Redis)
	if err != nil {
		return nil, err
	}
	o.ContextTimeoutEnabled, o.MaxRetries, o.DisableIdentity, o.DialerRetries = true, -1, true, 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = f.Timeout, f.Timeout, f.Timeout
	o.MaintNotificationsConfig = noNotices()
	if err := f.certificates(o.TLSConfig); err != nil {
		return nil, err
	}
	o.CredentialsProviderContext = f.credentials(o.Username)
	o.Dialer = redisstore.Dialer(func() (time.Duration, *tls.Config) { return o.DialTimeout, o.TLSConfig })
	return redis.NewClient(o), nil
}

func (f Flags) sentinel() (redis.UniversalClient, error) {
	o, err := redis.ParseFailoverURL(f.Redis)
	if err != nil {
		return nil, err
	}
	o.ContextTimeoutEnabled, o.MaxRetries, o.DisableIdentity, o.DialerRetries = true, -1, true, 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = f.Timeout, f.Timeout, f.Timeout
	if err := f.certificates(o.TLSConfig); err != nil {
		return nil, err
	}
	o.CredentialsProviderContext = f.credentials(o.Username)
	o.Dialer = redisstore.Dialer(func() (time.Duration, *tls.Config) { return o.DialTimeout, o.TLSConfig })
	return redis.NewFailoverClient(o), nil
}

func (f Flags) cluster() (redis.UniversalClient, error) {
	o, err := redis.ParseClusterURL(f.Redis)
	if err != nil {
		return nil, err
	}
	o.ContextTimeoutEnabled, o.MaxRetries, o.DisableIdentity, o.DialerRetries = true, -1, true, 1
	o.MinRetryBackoff, o.MaxRetryBackoff = -1, -1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = f.Timeout, f.Timeout, f.Timeout
	o.MaintNotificationsConfig = noNotices()
	if err := f.certificates(o.TLSConfig); err != nil {
		return nil, err
	}
	o.CredentialsProviderContext = f.credentials(o.Username)
	o.Dialer = redisstore.Dialer(func() (time.Duration, *tls.Config) { return o.DialTimeout, o.TLSConfig })
	return redis.NewClusterClient(o), nil
}

// noNotices saves the round trips that ask a server for notices of maintenance.
func noNotices() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// certificates adds those of the flags; c is nil without TLS.
func (f Flags) certificates(c *tls.Config) error {
	switch {
	case f.CA == "" && f.Cert == "" && f.KeyFile == "":
		return nil
	case c == nil:
		return errors.New("certificates are for TLS: the URL must begin with rediss://")
	case (f.Cert == "") != (f.KeyFile == ""):
		return errors.New("--cert and --key-file belong together")
	}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%s has no certificate in PEM", f.CA)
		}
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.KeyFile)
		if err != nil {
			return err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return nil
}
