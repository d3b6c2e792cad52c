package main

import "errors"

// doctorCmd checks a Redis.
type doctorCmd struct {
	redisFlags
}

// Run checks it.
func (c *doctorCmd) Run(p *program) error { return errors.New("doctor: not yet") }
