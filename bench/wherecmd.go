package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/suite"
	"github.com/pailfs/pailfs/bench/workload"
)

// whereCmd says where the time goes.
type whereCmd struct {
	commonFlags

	Workloads []string `arg:"" optional:"" name:"workload" help:"Only these workloads; see bench --list."`
	Full      bool     `help:"Full sizes."`
	Flag      []string `placeholder:"FLAG" help:"Further flags of pailfs mount, such as --flag=--immutable."`
	Page      string   `placeholder:"FILE" help:"Write the table into this file, between its marks."`
}

// Help says what the shares are of.
func (whereCmd) Help() string {
	return `Shares are of all processors over one run of pailfs; what is left is waiting. The server stands for network and object store. What the kernel
asked of the daemon and the daemon of the store comes from its /metrics, and a processor profile of the daemon (go tool pprof) follows for each workload.

Example:

	bench where write/small write/ckpt-stall`
}

// Run implements the command.
func (c *whereCmd) Run(p program) error {
	if !c.Short && !c.Full {
		c.sizes = workload.Quick()
	}
	if len(c.Workloads) == 0 {
		for _, w := range suite.Workloads(workload.Full()) {
			c.Workloads = append(c.Workloads, w.Name)
		}
	}
	for _, name := range c.Workloads {
		if _, err := suite.Find(workload.Full(), name); err != nil {
			return err
		}
	}
	s, err := c.open(p)
	if err != nil {
		return err
	}
	err = errors.Join(c.measure(p, s), s.close(p))
	write := func(w io.Writer) error { return result.WriteSpent(w, s.report) }
	if err := errors.Join(err, write(p.stdout)); err != nil {
		return err
	}
	if c.JSON != "" {
		if err := s.report.Save(c.JSON); err != nil {
			return err
		}
	}
	if c.Page != "" {
		return result.UpdatePage(c.Page, result.Where, write)
	}
	return nil
}

func (c *whereCmd) measure(p program, s *session) error {
	for _, name := range c.Workloads {
		w, err := suite.Find(s.sizes, name)
		if err != nil {
			return err
		}
		series, profile, err := s.runner.Where(p.ctx, w, suite.Options{Link: w.Link()}, c.Flag...)
		if err != nil {
			return err
		}
		s.report.Series = append(s.report.Series, series...)
		fmt.Fprintf(p.stdout, "%s: the daemon's processor time\n%s\n", name, profile)
	}
	return nil
}
