package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func TestUnixSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "redis.sock")
	if len(socket) > 100 {
		t.Skip("the name of the directory for tests is too long for a socket")
	}
	redistest.Start(t, "--unixsocket", socket)
	cli(t, "nodes", "--redis=unix://"+socket, "--timeout=1m").want(t, exitOK)
	cli(t, "nodes", "--redis=unix://"+socket+".absent").want(t, exitRedis).says(t, "redis.sock.absent", "no such file")
}

// certificate returns a certificate for 127.0.0.1 that signs itself, and files of it and
// its key.
func certificate(t *testing.T) (pair tls.Certificate, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert = write(t, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	key = write(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	if pair, err = tls.LoadX509KeyPair(cert, key); err != nil {
		t.Fatal(err)
	}
	return pair, cert, key
}

// encrypted puts TLS in front of a server, and returns where. Clients must show a
// certificate of the pool.
func encrypted(t *testing.T, s *redistest.Server, pair tls.Certificate, pool *x509.CertPool) string {
	t.Helper()
	lis, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool})
	if err != nil {
		t.Fatal(err)
	}
	relay(t, lis, func(conn net.Conn) { forward(conn, s.Addr()) })
	return lis.Addr().String()
}

// relay serves each connection until the end of the test.
func relay(t *testing.T, lis net.Listener, serve func(net.Conn)) {
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(func() { lis.Close() })
	all.Go(func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			all.Go(func() { serve(conn) })
		}
	})
}

func forward(conn net.Conn, addr string) {
	defer conn.Close()
	to, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer to.Close()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(conn, to)
		conn.Close()
	})
	_, _ = io.Copy(to, conn)
	to.Close()
	back.Wait()
}

func TestTLS(t *testing.T) {
	pair, cert, key := certificate(t)
	pool := x509.NewCertPool()
	pool.AddCert(pair.Leaf)
	s := redistest.Start(t, healthy...)
	addr := encrypted(t, s, pair, pool)
	url := "--redis=rediss://" + addr
	cli(t, "set", "k", "990", slowly, url, "--timeout=1m", "--ca="+cert, "--cert="+cert, "--key-file="+key).want(t, exitOK).says(t, "990")
	cli(t, "nodes", url, "--timeout=1m", "--cert="+cert, "--key-file="+key).want(t, exitRedis).says(t, "certificate")
	cli(t, "nodes", url, "--timeout=1m", "--ca="+cert).want(t, exitRedis).says(t, "certificate")
	cli(t, "nodes", "--redis=redis://"+addr, "--timeout=1m").want(t, exitRedis).says(t, "is TLS wanted")
	cli(t, append([]string{"doctor", url, "--timeout=1m", "--ca=" + cert, "--cert=" + cert, "--key-file=" + key}, patient...)...).want(t, exitOK)
}
