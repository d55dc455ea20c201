package main

import (
	"fmt"

	"github.com/pailfs/pailfs/bench/result"
)

// recordCmd puts later runs of single targets into the table.
type recordCmd struct {
	Files []string `arg:"" optional:"" type:"existingfile" help:"Results of some targets, as targets --json writes them."`
	Into  string   `default:"bench/results/targets.json" placeholder:"FILE" help:"The results of all targets (default ${default})."`
	Page  string   `default:"bench/results/targets.md" placeholder:"FILE" help:"Write the table into this file, between its marks (default ${default})."`
	Found string   `default:"bench/README.md" placeholder:"FILE" help:"Write the most important of them into this file, between its marks (default ${default})."`
}

// Help says what becomes of the rest.
func (recordCmd) Help() string {
	return `Measuring every target takes hours. Those that a change touches can be measured alone and take the place of what was known of them;
a note beside each says when, how and of which commit it was taken. Runs with reduced sizes, of a modified tree or of another machine are refused.
Without a file the pages are written anew.

Example:

	bench targets list list-large --json later.json
	bench record later.json`
}

// Run implements the command.
func (c *recordCmd) Run(p program) error {
	all, err := result.Load(c.Into)
	if err != nil {
		return err
	}
	for _, file := range c.Files {
		later, err := result.Load(file)
		if err != nil {
			return err
		}
		if len(later.Targets) == 0 {
			return fmt.Errorf("%s holds no targets: it is not from bench targets", file)
		}
		if err := all.Merge(later); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	if err := all.Save(c.Into); err != nil {
		return err
	}
	if err := writePages(all, c.Page, c.Found); err != nil {
		return err
	}
	showTargets(p, all)
	return nil
}
