package main

import (
	"errors"
	"path/filepath"

	"github.com/pailfs/pailfs/bench/result"
)

// growthCmd measures what becomes of latency, memory and requests as work grows.
type growthCmd struct {
	commonFlags

	Readme string `placeholder:"FILE" help:"Write the table into this file, between its marks (default bench/README.md, at full size)."`
}

// Help says what grows.
func (growthCmd) Help() string {
	return `The size of an object, the files of a directory, the directories above a file, and the readers at work grow ten- and a hundredfold (readers to 64),
one of them at a time. A time is that of one reader for one file, or for the one object.`
}

// Run implements the command.
func (c *growthCmd) Run(p program) error {
	if c.Runs == 0 && !c.Short {
		c.Runs = 3
	}
	s, err := c.open(p)
	if err != nil {
		return err
	}
	table, series, err := s.runner.Growth(p.ctx)
	s.report.Series = series
	if err := errors.Join(err, s.close(p)); err != nil {
		return err
	}
	readme := c.Readme
	if readme == "" && !c.Short {
		readme = filepath.Join("bench", "README.md")
	}
	return c.writeTable(p, s.report, table, readme, result.Growth)
}
