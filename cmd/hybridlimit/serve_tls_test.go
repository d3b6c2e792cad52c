package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// certificateFor writes a certificate for localhost that signs itself, and its key.
func certificateFor(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// Both protocols speak TLS, and only with clients that have a certificate.
func TestServeWithTLS(t *testing.T) {
	cert, key := certificateFor(t)
	s := runServe(t, "--alone", "--rules", rulesAt(t, someRules), "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", cert, "--stop-timeout", "1m")
	text, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	config.RootCAs.AppendCertsFromPEM(text)
	for _, with := range []bool{false, true} {
		if with {
			config.Certificates = []tls.Certificate{pair}
		}
		if got := pingTLS(t, s.addr["resp"], config); (got == "+PONG\r\n") != with {
			t.Errorf("with a certificate of the client %v: %q", with, got)
		}
		if err := healthTLS(t, s.addr["grpc"], config); (err == nil) != with {
			t.Errorf("with a certificate of the client %v: %v", with, err)
		}
	}
	s.end(t, exitOK)
}

func pingTLS(t *testing.T, addr string, config *tls.Config) string {
	c, err := tls.Dial("tcp", addr, config)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	reply := make([]byte, len("+PONG\r\n"))
	if _, err := io.WriteString(c, "PING\r\n"); err != nil {
		return err.Error()
	}
	if _, err := io.ReadFull(c, reply); err != nil {
		return err.Error()
	}
	return string(reply)
}

func healthTLS(t *testing.T, addr string, config *tls.Config) error {
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = healthpb.NewHealthClient(cc).Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}
