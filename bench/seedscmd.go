package main

import (
	"context"
	"errors"

	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/suite"
)

// seedsCmd measures a published table of ways to store.
type seedsCmd struct{ tableFlags }

// Run implements the command.
func (c *seedsCmd) Run(p program) error {
	return c.run(p, result.Seeds, (*suite.Runner).SeedsTable)
}

// tableFlags are those of commands that measure one page of bench/results.
type tableFlags struct {
	commonFlags

	Page string `placeholder:"FILE" help:"Write the table into this file, between its marks (default that of its name in bench/results, at full size)."`
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
	page := c.Page
	if page == "" && !c.Short {
		page = result.Page(marks)
	}
	return c.writeTable(p, s.report, table, page, marks)
}
