package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/suite"
)

// seedsCmd measures a published table of ways to store.
type seedsCmd struct{ tableFlags }

// Run implements the command.
func (c *seedsCmd) Run(p program) error {
	return c.run(p, result.Seeds, (*suite.Runner).SeedsTable)
}

// tableFlags are those of commands that measure one table of bench/README.md.
type tableFlags struct {
	commonFlags

	Readme string `placeholder:"FILE" help:"Write the table into this file, between its marks (default bench/README.md, at full size)."`
}

// run measures a table and writes it between the marks of that name.
func (c *tableFlags) run(p program, marks string, measure func(*suite.Runner, context.Context) (result.Table, []result.Series, error)) error {
	if c.Runs == 0 && !c.Short {
		c.Runs = 3
	}
	s, err := c.open(p)
	if err != nil {
		return err
	}
	table, series, err := measure(s.runner, p.ctx)
	s.report.Series = series
	if err := errors.Join(err, s.close(p)); err != nil {
		return err
	}
	readme := c.Readme
	if readme == "" && !c.Short {
		readme = filepath.Join("bench", "README.md")
	}
	return c.writeTable(p, s.report, table, readme, marks)
}
