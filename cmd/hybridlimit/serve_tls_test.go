package main

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// All that programs ask speaks TLS, and only with clients that have a certificate.
func TestServeWithTLS(t *testing.T) {
	pair, cert, key := certificate(t)
	s := runServe(t, "--alone", "--rules", rulesAt(t, someRules), "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", cert, "--stop-timeout", "1m")
	config := &tls.Config{RootCAs: pair.Pool()}
	for _, with := range []bool{false, true} {
		if with {
			config.Certificates = []tls.Certificate{pair.Certificate}
		}
		if got := pingTLS(t, s.addr["resp"], config); (got == "+PONG\r\n") != with {
			t.Errorf("with a certificate of the client %v: %q", with, got)
		}
		if code := checkTLS(t, s.addr["check"], config); (code == http.StatusBadRequest) != with {
			t.Errorf("with a certificate of the client %v: %d", with, code)
		}
		if err := healthTLS(t, s.addr["grpc"], config); (err == nil) != with {
			t.Errorf("with a certificate of the client %v: %v", with, err)
		}
	}
	s.end(t, exitOK)
}

// checkTLS returns the status of a check that says nothing; 0: there is none.
func checkTLS(t *testing.T, addr string, config *tls.Config) int {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: time.Minute}
	res, err := client.Post("https://"+addr+"/check", "application/json", http.NoBody)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	return res.StatusCode
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
