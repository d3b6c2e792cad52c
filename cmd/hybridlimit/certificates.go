package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// certificates are the files of --tls-cert, --tls-key and --tls-client-ca. They are read again
// when they have changed, so that a certificate that is renewed needs no restart. Connections
// that there are keep what they began with.
type certificates struct {
	cert, key, clientCA string // clientCA may be empty
	log                 *slog.Logger
	now                 func() time.Time // for lookEvery

	config atomic.Pointer[tls.Config] // the latest that could be used

	looking sync.Mutex // protects what follows. Nobody waits for it: handshakes go on with config
	looked  time.Time
	seen    [3]fileStamp // of the files as they were read last, whether they could be used or not
	failure string       // why those could not be used; empty if they are in use
}

// lookEvery is how often handshakes look whether the files have changed.
const lookEvery = time.Second

// fileStamp tells a file from what replaces it.
type fileStamp struct {
	modified time.Time
	size     int64
}

// openCertificates reads the files. They must be good now.
func openCertificates(cert, key, clientCA string, log *slog.Logger) (*certificates, error) {
	c := &certificates{cert: cert, key: key, clientCA: clientCA, log: log, now: time.Now}
	c.looked, c.seen = c.now(), c.stamps()
	config, err := c.read()
	if err != nil {
		return nil, err
	}
	c.config.Store(config)
	return c, nil
}

// server returns what each handshake asks for the certificates.
func (c *certificates) server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c.look()
			return c.config.Load(), nil
		},
	}
}

// look reads the files if they have changed. With a mistake those before stay: usually another
// file is about to follow. Files that could not be used are read again each time, because what
// was wrong may be mended without a change of theirs: a permission, or too many open files.
func (c *certificates) look() {
	if !c.looking.TryLock() {
		return
	}
	defer c.looking.Unlock()
	now := c.now()
	if now.Sub(c.looked) < lookEvery {
		return
	}
	c.looked = now
	stamps := c.stamps() // before they are read, so that no change is missed
	changed := stamps != c.seen
	if !changed && c.failure == "" {
		return
	}
	c.seen = stamps
	config, err := c.read()
	if err != nil {
		if changed || err.Error() != c.failure {
			c.log.Error("serve: the certificates have changed and cannot be used, those before stay", "error", err)
		}
		c.failure = err.Error()
		return
	}
	c.failure = ""
	c.config.Store(config)
	c.log.Info("serve: the certificates have changed, and are in use", "file", c.cert)
}

// stamps looks at the files. One that cannot be looked at has a stamp of zeros.
func (c *certificates) stamps() (list [3]fileStamp) {
	for i, file := range [...]string{c.cert, c.key, c.clientCA} {
		if info, err := os.Stat(file); err == nil {
			list[i] = fileStamp{info.ModTime(), info.Size()}
		}
	}
	return list
}

// read reads the files.
func (c *certificates) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert and --tls-key: %w", err)
	}
	// A session that is resumed would skip what has changed; connections here last long anyway.
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true}
	if c.clientCA == "" {
		return config, nil
	}
	text, err := os.ReadFile(c.clientCA)
	if err != nil {
		return nil, fmt.Errorf("--tls-client-ca: %w", err)
	}
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !config.ClientCAs.AppendCertsFromPEM(text) {
		return nil, errors.New("--tls-client-ca: there is no certificate in the file")
	}
	return config, nil
}
