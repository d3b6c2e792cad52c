package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
)

// files are certificates that a test replaces, and the time by which they are looked at.
type files struct {
	*certificates
	*testing.T
	logs    bytes.Buffer
	at      time.Time
	changes int
}

// openFiles serves the pair of the two files, which it copies, and believes clients of the third.
func openFiles(t *testing.T, cert, key, clientCA string) *files {
	t.Helper()
	f := &files{T: t, at: time.Now()}
	dir := t.TempDir()
	to := [3]string{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	if clientCA != "" {
		to[2] = filepath.Join(dir, "ca.pem")
	}
	for i, from := range []string{cert, key, clientCA} {
		if from != "" {
			f.replace(to[i], from)
		}
	}
	c, err := openCertificates(to[0], to[1], to[2], slog.New(slog.NewTextHandler(&f.logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	c.now, c.looked = func() time.Time { return f.at }, f.at
	f.certificates = c
	return f
}

// replace gives a file the content of another, and a time of change of its own.
func (f *files) replace(to, from string) {
	f.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o600); err != nil {
		f.Fatal(err)
	}
	f.changes++
	when := time.Unix(int64(1_000_000_000+f.changes), 0)
	if err := os.Chtimes(to, when, when); err != nil {
		f.Fatal(err)
	}
}

// served returns the certificate that a client sees, by either protocol; nil if it is sent away.
func (f *files) served(protocol string, client *tls.Config) []byte {
	f.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	ended := make(chan error, 1)
	go func() {
		defer theirs.Close()
		if protocol == "grpc" {
			conn, _, err := credentials.NewTLS(f.server()).ServerHandshake(theirs)
			if err == nil {
				_, err = conn.Write([]byte{'.'})
			}
			ended <- err
			return
		}
		_, err := tls.Server(theirs, f.server()).Write([]byte{'.'})
		ended <- err
	}()
	client.InsecureSkipVerify, client.NextProtos = true, nil
	if protocol == "grpc" {
		client.NextProtos = []string{"h2"}
	}
	conn := tls.Client(ours, client)
	ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	err := conn.HandshakeContext(ctx)
	if err == nil {
		_, err = conn.Read(make([]byte, 1)) // only now it is known what the server thinks of the client
	}
	ours.Close()
	if refused := <-ended; err != nil || refused != nil {
		return nil
	}
	return conn.ConnectionState().PeerCertificates[0].Raw
}

// want checks what is served, and how many lines of each level there are in the log.
func (f *files) want(what string, leaf []byte, failed, changed int) {
	f.Helper()
	for _, protocol := range []string{"resp", "grpc"} {
		if got := f.served(protocol, &tls.Config{}); !bytes.Equal(got, leaf) {
			f.Errorf("%s, %s: another certificate", what, protocol)
		}
	}
	if a, b := strings.Count(f.logs.String(), "level=ERROR"), strings.Count(f.logs.String(), "level=INFO"); a != failed || b != changed {
		f.Errorf("%s: %d errors and %d changes, want %d and %d:\n%s", what, a, b, failed, changed, &f.logs)
	}
}

func TestCertificatesAreReadAgain(t *testing.T) {
	old, oldCert, oldKey := certificate(t)
	renewed, newCert, newKey := certificate(t)
	f := openFiles(t, oldCert, oldKey, "")
	was, is := old.Leaf.Raw, renewed.Leaf.Raw
	f.want("at the start", was, 0, 0)

	f.replace(f.cert, newCert)
	f.want("within a second", was, 0, 0)
	for range 3 { // one line, however often it is looked at
		f.at = f.at.Add(lookEvery)
		f.want("a certificate without its key", was, 1, 0)
	}
	f.replace(f.key, newKey)
	f.at = f.at.Add(lookEvery)
	f.want("and its key", is, 1, 1)
}

// A renewed key that the server may not read is used once it may, although nothing else changes:
// chmod leaves the time and the size of a file. (Here a folder of its name stands for that: also
// the superuser cannot read it as a file.)
func TestCertificatesThatCouldNotBeReadAreReadLater(t *testing.T) {
	_, oldCert, oldKey := certificate(t)
	renewed, newCert, newKey := certificate(t)
	f := openFiles(t, oldCert, oldKey, "")
	f.replace(f.cert, newCert)
	f.replace(f.key, newKey)
	away := f.key + ".away"
	if err := errors.Join(os.Rename(f.key, away), os.Mkdir(f.key, 0o700)); err != nil {
		t.Fatal(err)
	}
	f.at = f.at.Add(lookEvery)
	f.look()
	f.seen = f.stampsOf(away) // as if the file had been there all the time
	if err := errors.Join(os.Remove(f.key), os.Rename(away, f.key)); err != nil {
		t.Fatal(err)
	}
	f.at = f.at.Add(lookEvery)
	f.want("now it can be read", renewed.Leaf.Raw, 1, 1)
	f.at = f.at.Add(lookEvery)
	f.want("and is in use", renewed.Leaf.Raw, 1, 1)
}

// stampsOf returns the stamps of the files, with the key under another name.
func (f *files) stampsOf(key string) [3]fileStamp {
	was := f.key
	f.key = key
	defer func() { f.key = was }()
	return f.stamps()
}

// Whom the server believes is read again as well: a client of the authority before is sent away,
// also one that could resume its session.
func TestClientAuthoritiesAreReadAgain(t *testing.T) {
	pair, cert, key := certificate(t)
	other, otherCert, _ := certificate(t)
	f := openFiles(t, cert, key, cert)
	for _, protocol := range []string{"resp", "grpc"} {
		before := &tls.Config{Certificates: []tls.Certificate{pair.Certificate}, ClientSessionCache: tls.NewLRUClientSessionCache(1), ServerName: "x"}
		after := &tls.Config{Certificates: []tls.Certificate{other.Certificate}}
		f.replace(f.clientCA, cert)
		f.at = f.at.Add(lookEvery)
		if f.served(protocol, before) == nil || f.served(protocol, after) != nil {
			t.Errorf("%s: not the authority of the start", protocol)
		}
		f.replace(f.clientCA, otherCert)
		f.at = f.at.Add(lookEvery)
		if f.served(protocol, before) != nil || f.served(protocol, after) == nil {
			t.Errorf("%s: not the new authority", protocol)
		}
	}
}
