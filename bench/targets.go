package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/suite"
)

// targetsCmd measures what must be reached.
type targetsCmd struct {
	commonFlags

	Names  []string `arg:"" optional:"" name:"target" help:"Only these targets."`
	List   bool     `help:"Show what targets there are."`
	Page   string   `placeholder:"FILE" help:"Write the table into this file, between its marks (default bench/results/targets.md, and what was found into bench/README.md, when all targets are measured at full size)."`
	Strict bool     `help:"End with an error when a target is missed."`
}

// Run implements the command.
func (c *targetsCmd) Run(p program) error {
	goals, err := chooseGoals(c.Names)
	if err != nil {
		return err
	}
	if c.List {
		for _, g := range goals {
			fmt.Fprintf(p.stdout, "%-24s %s\n", g.Name, g.Work)
		}
		return nil
	}
	s, err := c.open(p)
	if err != nil {
		return err
	}
	failed := measureGoals(p, s, goals)
	if err := s.close(p); err != nil {
		failed = errors.Join(failed, err)
	}
	showTargets(p, s.report)
	if err := c.write(s.report); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	missed := slices.IndexFunc(s.report.Targets, func(t result.Target) bool { return !t.Met() })
	if c.Strict && missed >= 0 {
		return fmt.Errorf("target %s is not met", s.report.Targets[missed].Name)
	}
	return nil
}

func chooseGoals(names []string) ([]suite.Goal, error) {
	all := suite.Goals()
	if len(names) == 0 {
		return all, nil
	}
	var chosen []suite.Goal
	for _, name := range names {
		i := slices.IndexFunc(all, func(g suite.Goal) bool { return g.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no target %q: see bench targets --list", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// measureGoals takes all goals. One that fails is reported and does not stop
// the others, unless the user did.
func measureGoals(p program, s *session, goals []suite.Goal) error {
	var failed error
	for _, g := range goals {
		p.say("%s: %s", g.Name, g.Work)
		taken, err := g.Take(p.ctx, s.runner)
		if errors.Is(err, context.Canceled) {
			return errors.Join(failed, err)
		}
		if err != nil {
			p.say("  failed: %v", err)
			failed = errors.Join(failed, fmt.Errorf("target %s: %w", g.Name, err))
			taken.Targets = []result.Target{{Name: g.Name, Work: g.Work, Refused: "it failed: " + firstLine(err.Error())}}
		}
		s.report.Targets = append(s.report.Targets, taken.Targets...)
		s.report.Series = append(s.report.Series, taken.Series...)
	}
	return failed
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func showTargets(p program, r *result.Report) {
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TARGET\tWANT\tMEASURED\t\tPAILFS\tREFERENCE\tAGAINST")
	for i := range r.Targets {
		t := &r.Targets[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.Name, t.ShowWant(), t.ShowMeasured(), r.Verdict(t), t.Subject, t.Reference, t.Against)
	}
	_ = w.Flush() // to the terminal
	fmt.Fprintln(p.stdout)
	showSeries(p, r)
	for i := range r.Targets {
		if t := &r.Targets[i]; t.Refused != "" {
			fmt.Fprintf(p.stdout, "%s: %s\n", t.Name, t.Refused)
		}
	}
}

// write puts the report where it belongs.
func (c *targetsCmd) write(r *result.Report) error {
	page, file, found := c.Page, c.JSON, ""
	if len(c.Names) == 0 && !c.Short {
		if page == "" {
			page, found = result.Page(result.Targets), result.Page(result.Found)
		}
		if file == "" {
			file = filepath.Join("bench", "results", "targets.json")
		}
	}
	if file != "" {
		if err := r.Save(file); err != nil {
			return err
		}
	}
	return writePages(r, page, found)
}

// headlines are the targets that bench/README.md shows, whatever came of them.
var headlines = []string{
	"seq-warm", "seq-ssd", "rand4k-ssd", "seq-cold-link", "rand4k-cold", "small-warm-immutable-1", "small-warm-1", "small-cold",
	"requests-first", "memory", "manifest-list-flat", "list-first", "tree", "write-1", "write-stall", "write-in-oss", "restore",
	"train-retinanet", "train-again",
}

// writePages writes the targets into page, and what was found into the file found; "" is none.
func writePages(r *result.Report, page, found string) error {
	if page != "" {
		if err := result.UpdatePage(page, result.Targets, r.WriteMarkdown); err != nil {
			return err
		}
	}
	if found == "" {
		return nil
	}
	return result.UpdatePage(found, result.Found, func(w io.Writer) error { return r.WriteSummary(w, headlines) })
}
