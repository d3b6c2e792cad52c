package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// mostPassword bounds a password, in bytes.
const mostPassword = 4 << 10

// credentials returns what a client asks for a user and a password whenever it connects; nil if no file
// was named. So a password that has changed needs no restart.
func (f Flags) credentials(user string) func(context.Context) (string, string, error) {
	if f.PasswordFile == "" {
		return nil
	}
	return func(context.Context) (string, string, error) {
		password, err := readPassword(f.PasswordFile)
		return user, password, err
	}
}

// readPassword returns the text of a file without the end of its line, which editors add.
func readPassword(path string) (string, error) {
	info, err := os.Stat(path) // before it is opened: to open a pipe would wait
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New(path + " is not a regular file: it is read more than once")
	}
	if err != nil {
		return "", fmt.Errorf("--redis-password-file: %w", err)
	}
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("--redis-password-file: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, mostPassword+1))
	password := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	switch {
	case err != nil:
	case len(text) > mostPassword:
		err = fmt.Errorf("%s: more than %d bytes are no password", path, mostPassword)
	case password == "":
		err = fmt.Errorf("%s: the file is empty", path)
	case strings.Contains(password, "\n"):
		err = errors.New(path + ": the file has more than one line")
	default:
		return password, nil
	}
	return "", fmt.Errorf("--redis-password-file: %w", err)
}
