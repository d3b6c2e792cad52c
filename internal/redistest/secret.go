package redistest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"sync"
	"time"
)

// Secret puts TLS in front of a server that speaks none.
type Secret struct {
	ln     net.Listener
	pool   *x509.CertPool
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// NewSecret starts to listen on a free loopback port for clients of target, a "host:port". The
// caller must Close it.
func NewSecret(target string) (*Secret, error) {
	cert, pool, err := selfSigned()
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	s := &Secret{ln: ln, pool: pool}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.wg.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() { join(ctx, client, target) })
		}
	})
	return s, nil
}

// Addr is where clients connect.
func (s *Secret) Addr() string { return s.ln.Addr().String() }

// Config is what clients need.
func (s *Secret) Config() *tls.Config { return &tls.Config{RootCAs: s.pool, ServerName: "127.0.0.1"} }

// Close ends all connections, and waits for that.
func (s *Secret) Close() {
	s.cancel()
	s.ln.Close()
	s.wg.Wait()
}

// join passes on what two sides say, until one ends.
func join(ctx context.Context, client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(both, func() {
		client.Close()
		server.Close()
	})()
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		wg.Go(func() {
			defer cancel()
			_, _ = io.Copy(way[1], way[0]) // an error ends it as well
		})
	}
	wg.Wait()
}

// selfSigned makes a certificate for 127.0.0.1.
func selfSigned() (cert tls.Certificate, pool *x509.CertPool, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return cert, nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return cert, nil, err
	}
	pool = x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, pool, nil
}
