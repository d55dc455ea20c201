package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/pailfs/pailfs/bench/reader"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
	"github.com/pailfs/pailfs/bench/suite"
	"github.com/pailfs/pailfs/bench/workload"
)

// runCmd measures single workloads.
type runCmd struct {
	commonFlags

	Workloads []string `arg:"" optional:"" name:"workload" help:"Workloads; see --list."`
	List      bool     `help:"Show what workloads and clients there are."`
	Client    []string `default:"pailfs,disk" placeholder:"NAME" help:"Clients, measured in turn."`
	Profile   string   `placeholder:"NAME" help:"Profile of the server: none, seed, accelerator (default: the workload's)."`
	Download  string   `placeholder:"RATE" help:"Limit of all downloads together, such as 600MB."`
	Upload    string   `placeholder:"RATE" help:"Limit of all uploads together (default: the workload's)."`
	Readers   int      `placeholder:"N" help:"Files read at once (default: the workload's)."`
}

// Run implements the command.
func (c *runCmd) Run(p program) error {
	if c.List || len(c.Workloads) == 0 {
		return listWorkloads(p)
	}
	var drivers []rig.Driver
	for _, name := range c.Client {
		d, ok := rig.Drivers()[name]
		if !ok {
			return fmt.Errorf("there is no client %q: see --list", name)
		}
		drivers = append(drivers, d)
	}
	for _, name := range c.Workloads {
		if _, err := suite.Find(workload.Full(), name); err == nil {
			continue
		}
		if _, err := suite.FindStudy(name); err != nil {
			return err
		}
	}
	s, err := c.open(p)
	if err != nil {
		return err
	}
	err = errors.Join(c.measure(p, s, drivers), s.close(p))
	showSeries(p, s.report)
	if err == nil && c.JSON != "" {
		err = s.report.Save(c.JSON)
	}
	for _, x := range s.report.Series {
		if x.Failed != "" {
			err = errors.Join(err, fmt.Errorf("%s failed at %s: %s", x.Client, x.Workload, firstLine(x.Failed)))
		}
	}
	return err
}

func (c *runCmd) measure(p program, s *session, drivers []rig.Driver) error {
	for _, name := range c.Workloads {
		if study, err := suite.FindStudy(name); err == nil {
			table, series, err := study.Take(p.ctx, s.runner)
			s.report.Series = append(s.report.Series, series...)
			if err == nil && len(table.Rows) > 0 {
				err = table.WriteMarkdown(p.stdout, s.report)
			}
			if err != nil {
				return err
			}
			continue
		}
		w, err := suite.Find(s.sizes, name)
		if err != nil {
			return err
		}
		o := suite.Options{Link: w.Link(), Readers: c.Readers, Tolerate: true}
		o.Link.Download = c.Download
		if c.Profile != "" {
			o.Link.Profile = c.Profile
		}
		if c.Upload != "" {
			o.Link.Upload = c.Upload
		}
		var subjects []suite.Subject
		for _, d := range drivers {
			subject := suite.SubjectOf(d, w)
			if d.Name() == (rig.Bare{}).Name() {
				if subject, err = bareSubject(p, s, w, o); err != nil {
					return err
				}
			}
			subjects = append(subjects, subject)
		}
		series, err := s.runner.Measure(p.ctx, w, o, subjects...)
		if err != nil {
			return err
		}
		s.report.Series = append(s.report.Series, series...)
	}
	return nil
}

// bareSubject is the bare client at its best for w.
func bareSubject(p program, s *session, w workload.Workload, o suite.Options) (suite.Subject, error) {
	if w.Task != nil {
		return suite.Subject{Driver: rig.Bare{}}, nil
	}
	switch w.Job.Pattern {
	case reader.Sequential:
		return s.runner.BestBare(p.ctx, w, o, reader.Bytes)
	case reader.Train:
		return suite.SubjectOf(rig.Bare{}, w), nil
	default:
		return suite.BareChecked(), nil
	}
}

func listWorkloads(p program) error {
	fmt.Fprintln(p.stdout, "workloads:")
	for _, w := range suite.Workloads(workload.Full()) {
		fmt.Fprintf(p.stdout, "  %-18s %s\n", w.Name, w.Help)
	}
	for _, s := range suite.Studies() {
		fmt.Fprintf(p.stdout, "  %-18s %s\n", s.Name, s.Help)
	}
	fmt.Fprintln(p.stdout, "clients:")
	for _, name := range slices.Sorted(maps.Keys(rig.Drivers())) {
		fmt.Fprintf(p.stdout, "  %s\n", name)
	}
	return nil
}

func showSeries(p program, r *result.Report) {
	if len(r.Series) == 0 {
		return
	}
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WORKLOAD\tCLIENT\tLINK\t\tMEDIAN\tLEAST\tMOST\tSERVER")
	for i := range r.Series {
		s := &r.Series[i]
		if s.Failed != "" {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\tfailed\n", s.Workload, s.Client, s.Link, s.How)
			continue
		}
		least, most := s.Range()
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.0f %%\n", s.Workload, s.Client, s.Link, s.How, s.Show(),
			result.ShowValue(least, s.Metric), result.ShowValue(most, s.Metric), 100*s.ServerShare())
	}
	_ = w.Flush() // to the terminal
}
