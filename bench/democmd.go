package main

import "errors"

type demoCmd struct{}

// Run implements the command.
func (demoCmd) Run(program) error { return errors.New("not yet") }
