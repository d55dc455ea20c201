package main

import (
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/suite"
)

// growthCmd measures what becomes of latency, memory and requests as work grows.
type growthCmd struct{ tableFlags }

// Help says what grows.
func (growthCmd) Help() string {
	return `The size of an object, the files of a directory, the directories above a file, and the readers at work grow ten- and a hundredfold (readers to 64),
one of them at a time. A time is that of one reader for one file, or for the one object.`
}

// Run implements the command.
func (c *growthCmd) Run(p program) error {
	return c.run(p, result.Growth, (*suite.Runner).Growth)
}
