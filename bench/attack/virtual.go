package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// self is the package of this command. testing/synctest works only in a test, so the rows in virtual
// time are tests of it, see virtual_test.go.
const self = "github.com/hybridlimit/hybridlimit/bench/attack"

// virtual plays a row around an embedded Redis, by a test that writes down what has come of it.
func (o options) virtual(ctx context.Context, s scenario) (*measurement, error) {
	dir, err := os.MkdirTemp("", "attack")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "measurement.json")
	cmd := exec.CommandContext(ctx, "go", "test", "-count", "1", "-timeout", "1h", "-run", "^TestVirtual$", self, "-args",
		"-attack.row", s.name, "-attack.scale", fmt.Sprint(o.scale), "-attack.seed", fmt.Sprint(o.seed), "-attack.file", file)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go test: %w\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	m := &measurement{scenario: s}
	return m, json.Unmarshal(text, &m.outcome)
}
