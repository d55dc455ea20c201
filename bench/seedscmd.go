package main

import (
	"errors"
	"path/filepath"

	"github.com/pailfs/pailfs/bench/result"
)

// seedsCmd measures a published table of ways to store.
type seedsCmd struct {
	commonFlags

	Readme string `placeholder:"FILE" help:"Write the table into this file, between its marks (default bench/README.md, at full size)."`
}

// Run implements the command.
func (c *seedsCmd) Run(p program) error {
	if c.Runs == 0 && !c.Short {
		c.Runs = 3
	}
	s, err := c.open(p)
	if err != nil {
		return err
	}
	table, series, err := s.runner.SeedsTable(p.ctx)
	s.report.Series = series
	if err := errors.Join(err, s.close(p)); err != nil {
		return err
	}
	readme := c.Readme
	if readme == "" && !c.Short {
		readme = filepath.Join("bench", "README.md")
	}
	return c.writeTable(p, s.report, table, readme, result.Seeds)
}
