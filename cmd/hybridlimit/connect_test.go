package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/connect"
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

// A host is enough. What it is called in messages has the port.
func TestHostIsEnough(t *testing.T) {
	s := redistest.Start(t)
	cli(t, "nodes", "--redis="+s.Addr(), "--timeout=1m").want(t, exitOK)
	for given, want := range map[string]string{"localhost": "localhost:6379", "redis.example:7000": "redis.example:7000", "[::1]:7000": "[::1]:7000", ":secret@h/1": "h:6379"} {
		target, err := connect.Flags{Redis: given, Timeout: time.Second}.Open()
		if err != nil {
			t.Fatalf("%s: %v", given, err)
		}
		target.Close()
		if target.Name != want {
			t.Errorf("%s is %s, want %s", given, target.Name, want)
		}
	}
}

// certificate returns a certificate for 127.0.0.1 that signs itself, and files of it and
// its key.
func certificate(t *testing.T) (pair redistest.Certificate, cert, key string) {
	t.Helper()
	pair, err := redistest.NewCertificate()
	if err != nil {
		t.Fatal(err)
	}
	return pair, write(t, "cert.pem", string(pair.CertPEM)), write(t, "key.pem", string(pair.KeyPEM))
}

func TestTLS(t *testing.T) {
	pair, cert, key := certificate(t)
	secret, err := redistest.NewMutualSecret(redistest.Start(t, healthy...).Addr(), pair)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(secret.Close)
	addr := secret.Addr()
	url := "--redis=rediss://" + addr
	cli(t, "set", "k", "990", slowly, url, "--timeout=1m", "--ca="+cert, "--cert="+cert, "--key-file="+key).want(t, exitOK).says(t, "990")
	cli(t, "nodes", url, "--timeout=1m", "--cert="+cert, "--key-file="+key).want(t, exitRedis).says(t, "certificate")
	cli(t, "nodes", url, "--timeout=1m", "--ca="+cert).want(t, exitRedis).says(t, "certificate")
	cli(t, "nodes", "--redis=redis://"+addr, "--timeout=1m").want(t, exitRedis).says(t, "is TLS wanted")
	cli(t, append([]string{"doctor", url, "--timeout=1m", "--ca=" + cert, "--cert=" + cert, "--key-file=" + key}, patient...)...).want(t, exitOK)
}
