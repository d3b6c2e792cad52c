package connect

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A password that has changed, in Redis and in its file, needs no restart: the next connection reads it.
func TestPasswordFileIsReadAgain(t *testing.T) {
	srv := redistest.Start(t, "--requirepass", "first")
	path := filepath.Join(t.TempDir(), "password")
	write(t, path, "first\n")
	target, err := Flags{Redis: srv.Addr(), Timeout: 5 * time.Second, PasswordFile: path}.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	ctx := t.Context()
	if err := target.Ping(ctx).Err(); err != nil || !target.Password {
		t.Fatal(err, target.Password)
	}
	if err := target.ConfigSet(ctx, "requirepass", "sec ond").Err(); err != nil {
		t.Fatal(err)
	}
	// held asks while so many other connections are in use, so that it needs one of its own.
	var held func(others int) error
	held = func(others int) error {
		if others == 0 {
			return target.Ping(ctx).Err()
		}
		return target.Watch(ctx, func(*redis.Tx) error { return held(others - 1) }, "k")
	}
	if err := held(1); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("the file has the password of before: %v", err)
	}
	write(t, path, "sec ond\r\n")
	if err := held(1); err != nil {
		t.Error(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := held(2); err == nil || !strings.Contains(err.Error(), "--redis-password-file: stat ") {
		t.Errorf("without the file: %v", err)
	}
}

// A mistake in the file is said at the start, and its text is in no error.
func TestPasswordFileIsWrong(t *testing.T) {
	dir := t.TempDir()
	at := func(name, text string) string {
		path := filepath.Join(dir, name)
		write(t, path, text)
		return path
	}
	for _, c := range []struct{ redis, path, want string }{
		{"localhost", filepath.Join(dir, "none"), "--redis-password-file: stat "},
		{"localhost", dir, "is not a regular file"},
		{"localhost", os.DevNull, "is not a regular file"},
		{"localhost", at("empty", "\n"), "the file is empty"},
		{"localhost", at("lines", "secret\nsecret\n"), "more than one line"},
		{"localhost", at("long", strings.Repeat("secret", 1000)), "are no password"},
		{"redis://:secret@localhost", at("twice", "secret"), "give one"},
		{"redis://localhost?master_name=m&password=secret", at("twice", "secret"), "give one"},
		{"redis://localhost?master_name=m", filepath.Join(dir, "none"), "--redis-password-file: stat "},
	} {
		_, err := Flags{Redis: c.redis, Timeout: time.Second, PasswordFile: c.path}.Open()
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Each kind of client asks for the password when it connects.
func TestEachClientReadsThePasswordFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	for _, f := range []Flags{
		{Redis: "redis://me@localhost"}, {Redis: "redis://me@localhost", Cluster: true}, {Redis: "redis://it:secret@localhost?master_name=m&username=me"},
	} {
		f.Timeout, f.PasswordFile = time.Second, path
		write(t, path, "first")
		target, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		ask := func(context.Context) (string, string, error) { return "", "", nil }
		switch c := target.UniversalClient.(type) {
		case *redis.Client:
			ask = c.Options().CredentialsProviderContext
		case *redis.ClusterClient:
			ask = c.Options().CredentialsProviderContext
		}
		write(t, path, "second")
		if user, password, err := ask(t.Context()); user != "me" || password != "second" || err != nil {
			t.Errorf("%s, Cluster %v: %q, %q, %v", f.Redis, f.Cluster, user, password, err)
		}
		_ = target.Close()
	}
}
