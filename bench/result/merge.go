package result

import (
	"fmt"
	"slices"
)

// Merge takes the targets and series of a later run into r, each in the place of
// the one of its name. Every target that came so has a note that says when and of
// which commit; the head of the report stays that of the first run. Runs with reduced sizes, of a
// modified tree or of another machine are refused: their figures do not belong
// in one table.
func (r *Report) Merge(later *Report) error {
	switch m, other := r.Machine, later.Machine; {
	case later.Short:
		return fmt.Errorf("take in the run of %s: its sizes were reduced; measure without --short", later.at())
	case other.Modified:
		return fmt.Errorf("take in the run of %s: the tree differed from commit %s; commit, build and measure again", later.at(), other.Commit)
	case m.CPU != other.CPU || m.Cores != other.Cores || m.FileSystem != other.FileSystem:
		return fmt.Errorf("take in the run of %s: it is of another machine (%s, %d cores, %s; the table is of %s, %d cores, %s); measure everything anew",
			later.at(), other.CPU, other.Cores, other.FileSystem, m.CPU, m.Cores, m.FileSystem)
	}
	note := fmt.Sprintf("taken %s with `%s`, commit %s", later.at(), later.Command, later.Machine.Commit)
	for _, t := range later.Targets {
		t.Notes = append([]string{note}, t.Notes...)
		if i := slices.IndexFunc(r.Targets, func(old Target) bool { return old.Name == t.Name }); i >= 0 {
			r.Targets[i] = t
		} else {
			r.Targets = append(r.Targets, t)
		}
	}
	for _, s := range later.Series {
		if i := slices.IndexFunc(r.Series, func(old Series) bool { return old.name() == s.name() }); i >= 0 {
			r.Series[i] = s
		} else {
			r.Series = append(r.Series, s)
		}
	}
	return nil
}

func (r *Report) at() string { return r.Taken.UTC().Format("2006-01-02 15:04 UTC") }

// name is what distinguishes a series from the others of a report.
func (s *Series) name() [4]string { return [4]string{s.Workload, s.Client, s.Link, s.How} }
