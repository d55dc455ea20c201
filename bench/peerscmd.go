package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pailfs/pailfs/bench/chart"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
	"github.com/pailfs/pailfs/bench/suite"
	"github.com/pailfs/pailfs/bench/workload"
)

// peersCmd measures pailfs beside other clients and the limits.
type peersCmd struct {
	commonFlags

	Workloads []string `arg:"" optional:"" name:"workload" help:"Only these workloads; see bench --list."`
	Client    []string `placeholder:"NAME" help:"Clients beside pailfs (default: disk, bare, and every peer on PATH)."`
	Full      bool     `help:"Full sizes: hours with slow peers. The default sizes take minutes."`
	Out       string   `placeholder:"DIR" help:"Where to put table, pictures and results (default bench/results/DATE-COMMIT)."`
	Page      string   `placeholder:"FILE" help:"Write the table into this file, between its marks (default bench/results/peers.md, when all is measured and nothing is reduced)."`
}

// peersLink is the link of the workloads that have a latency: at the seed's own
// 1.5 GB/s the server would be what is measured.
const peersLink = "600MB"

// peersPatience is how long a client may take for a workload before it gives no more
// samples, where the sizes are not full: slow clients would take most of the time.
const peersPatience = 3 * time.Second

// Run implements the command.
func (c *peersCmd) Run(p program) error {
	drivers, err := c.drivers(p)
	if err != nil {
		return err
	}
	workloads, err := c.workloads()
	if err != nil {
		return err
	}
	if !c.Short && !c.Full {
		c.sizes = workload.Quick()
	}
	if c.Runs == 0 && !c.Short {
		c.Runs = 3
	}
	s, err := c.open(p)
	if err != nil {
		return err
	}
	err = errors.Join(c.measure(p, s, workloads, drivers), s.close(p))
	if len(s.report.Series) == 0 {
		return err
	}
	err = errors.Join(err, c.write(p, s.report))
	if failed := slices.IndexFunc(s.report.Series, func(x result.Series) bool {
		return x.Failed != "" && strings.HasPrefix(x.Client, "pailfs")
	}); failed >= 0 {
		err = errors.Join(err, fmt.Errorf("%s failed at %s: %s", s.report.Series[failed].Client, s.report.Series[failed].Workload, s.report.Series[failed].Failed))
	}
	return err
}

// drivers returns pailfs and the clients beside it.
func (c *peersCmd) drivers(p program) ([]rig.Driver, error) {
	drivers := []rig.Driver{rig.Pailfs{}, rig.PailfsImmutable()}
	names := c.Client
	if len(names) == 0 {
		names = []string{(rig.Disk{}).Name(), (rig.Bare{}).Name()}
		for _, peer := range rig.Peers() {
			if peer.Installed() {
				names = append(names, peer.Name())
			} else {
				p.say("%s is not on PATH: left out", peer.Name())
			}
		}
	}
	for _, name := range names {
		d, ok := rig.Drivers()[name]
		if !ok {
			return nil, fmt.Errorf("there is no client %q: see bench --list", name)
		}
		if !strings.HasPrefix(name, "pailfs") {
			drivers = append(drivers, d)
		}
	}
	return drivers, nil
}

func (c *peersCmd) workloads() ([]workload.Workload, error) {
	var chosen []workload.Workload
	if len(c.Workloads) == 0 {
		for _, w := range suite.Workloads(workload.Full()) {
			if w.Task == nil || !w.Task.Only { // what is restored is measured with its writing
				chosen = append(chosen, w)
			}
		}
		return chosen, nil
	}
	for _, name := range c.Workloads {
		w, err := suite.Find(workload.Full(), name)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, w)
	}
	return chosen, nil
}

// measure takes every workload with every client that has a part in it.
func (c *peersCmd) measure(p program, s *session, workloads []workload.Workload, drivers []rig.Driver) error {
	for _, named := range workloads {
		w, err := suite.Find(s.sizes, named.Name)
		if err != nil {
			return err
		}
		o := suite.Options{Link: w.Link(), Tolerate: true}
		if !c.Full {
			o.Patience = peersPatience
		}
		if w.Profile == "seed" && o.Link.Download == "" && o.Link.Upload == "" {
			o.Link.Download = peersLink
		}
		var subjects []suite.Subject
		for _, d := range drivers {
			switch {
			case !w.Takes(d):
				continue
			case d.Name() == (rig.Bare{}).Name():
				subject, err := bareSubject(p, s, w, o)
				if err != nil {
					return err
				}
				subjects = append(subjects, subject)
			default:
				subjects = append(subjects, suite.SubjectOf(d, w))
			}
		}
		p.say("%s: %s", w.Name, w.Help)
		series, err := s.runner.Measure(p.ctx, w, o, subjects...)
		if err != nil {
			return err
		}
		s.report.Series = append(s.report.Series, series...)
	}
	return nil
}

// comparison is what pailfs is shown beside.
var comparison = result.Comparison{Limits: []string{"disk", "bare"}, Subject: "pailfs"}

// write puts table, pictures and results into a directory of their own.
func (c *peersCmd) write(p program, r *result.Report) error {
	dir := c.Out
	if dir == "" {
		commit := r.Machine.Commit
		if r.Machine.Modified {
			commit += "-modified"
		}
		dir = filepath.Join("bench", "results", r.Taken.Format("2006-01-02")+"-"+commit)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	table := func(w io.Writer) error {
		if err := comparison.WriteMarkdown(w, r); err != nil {
			return err
		}
		return writeOptions(p, w, r)
	}
	f, err := os.Create(filepath.Join(dir, "table.md"))
	if err != nil {
		return err
	}
	err = errors.Join(table(f), f.Close(), r.Save(filepath.Join(dir, "results.json")), drawRows(dir, r))
	if err != nil {
		return err
	}
	if err := table(p.stdout); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "\ntable, pictures and results: %s\n", dir)
	if c.JSON != "" {
		if err := r.Save(c.JSON); err != nil {
			return err
		}
	}
	page := c.Page
	if page == "" && len(c.Workloads) == 0 && len(c.Client) == 0 && !c.Short && c.Out == "" {
		page = result.Page(result.Peers)
	}
	if page == "" {
		return nil
	}
	return result.UpdatePage(page, result.Peers, func(w io.Writer) error { return errors.Join(table(w), showPictures(w, r, page, dir)) })
}

// picture is the file name of a workload's picture.
func picture(workload string) string { return strings.ReplaceAll(workload, "/", "-") + ".svg" }

// showPictures links those in dir into the file page.
func showPictures(w io.Writer, r *result.Report, page, dir string) error {
	at, err := filepath.Rel(filepath.Dir(page), dir)
	if err != nil {
		return fmt.Errorf("link pictures: %w", err)
	}
	fmt.Fprint(w, "\n<details><summary>Pictures</summary>\n\n")
	for _, row := range comparison.Rows(r) {
		if _, err := os.Stat(filepath.Join(dir, picture(row.Workload))); err == nil {
			fmt.Fprintf(w, "![%s](%s)\n", row.Workload, filepath.ToSlash(filepath.Join(at, picture(row.Workload))))
		}
	}
	_, err = fmt.Fprint(w, "\n</details>\n")
	return err
}

// writeOptions says which versions and options of the peers were used.
func writeOptions(p program, w io.Writer, r *result.Report) error {
	fmt.Fprintln(w)
	for _, peer := range rig.Peers() {
		if !slices.ContainsFunc(r.Series, func(s result.Series) bool { return s.Client == peer.Name() }) {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s: %s; options: %s.  \n", peer.Name(), peer.Version(p.ctx), peer.Options); err != nil {
			return err
		}
	}
	return nil
}

// drawRows draws one picture a workload.
func drawRows(dir string, r *result.Report) error {
	for _, row := range comparison.Rows(r) {
		panel := chart.Panel{Title: strings.TrimSpace(row.Workload + " " + row.How)}
		for _, s := range row.Series {
			if s.Failed != "" {
				continue
			}
			tone := chart.Start
			switch {
			case strings.HasPrefix(s.Client, comparison.Subject):
				tone = chart.Subject
			case slices.Contains(comparison.Limits, strings.SplitN(s.Client, ",", 2)[0]):
				tone = chart.Reference
			}
			panel.Bars = append(panel.Bars, chart.Bar{Name: s.Client, Value: s.Value, Label: s.Show(), Tone: tone})
		}
		if len(panel.Bars) == 0 {
			continue
		}
		note := fmt.Sprintf("link %s; %d cores, Linux %s; commit %s; median of %d", row.Link, r.Machine.Cores, r.Machine.Kernel, r.Machine.Commit, len(row.Series[0].Samples))
		better := "more is better"
		if row.Metric == result.Seconds {
			better = "less is better"
		}
		c := chart.Chart{Title: "pailfs and others: " + better, Note: note, Panels: []chart.Panel{panel}}
		if err := c.Save(filepath.Join(dir, picture(row.Workload))); err != nil {
			return err
		}
	}
	return nil
}
