//go:build !unix

package main

import (
	"errors"
	"time"
)

func processorTime() (time.Duration, error) {
	return 0, errors.New("the processor time of a process is only read on Unix")
}
