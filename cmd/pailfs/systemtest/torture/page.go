package torture

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// page is what a summary says above Marker, but for the sum of all.
type page struct {
	rows     []row
	failures []failure
	samples  []sample
}

// row is what became of the rounds of a kind, mostly on one commit.
type row struct {
	kind                                   string
	rounds, kills, losses, pending, failed int
	hours                                  float64
	seeds                                  []uint64 // sorted, each once
	commits, dates                         []string // sorted, each once
}

// failure is a round that failed. Its cells are its line, as it is printed.
type failure struct {
	kind, commit string
	seed         uint64
	cells        []string
}

// sample is one of a soak's. Its cells are its line, as it is printed.
type sample struct {
	commit string
	seed   uint64
	cells  []string
}

// has says whether the row counts a round.
func (r row) has(kind, commit string, seed uint64) bool {
	_, found := slices.BinarySearch(r.seeds, seed)
	return found && r.kind == kind && slices.Contains(r.commits, commit)
}

// String is the row as a line of the table. The kind with the name "all" is the sum.
func (r row) String() string {
	what := ""
	for _, k := range Kinds() {
		if k.Name == r.kind {
			what = k.What
		}
	}
	return line(r.kind, what, fmt.Sprint(r.rounds), fmt.Sprint(r.kills), fmt.Sprint(r.losses), fmt.Sprint(r.pending), fmt.Sprint(r.failed),
		fmt.Sprintf("%.2f", r.hours), ranges(r.seeds), strings.Join(r.commits, ", "), strings.Join(r.dates, ", "))
}

// line makes a line of a table.
func line(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |\n" }

// rowOf counts rounds of one kind.
func rowOf(kind string, of []Result) row {
	r := row{kind: kind, rounds: len(of)}
	for _, result := range of {
		r.kills += result.Report.Kills
		r.losses += result.Report.PowerLosses
		if result.Report.Pending {
			r.pending++
		}
		if !result.OK {
			r.failed++
		}
		r.hours += result.Seconds / 3600
		r.seeds = append(r.seeds, result.Seed)
		r.commits = append(r.commits, result.Commit)
		r.dates = append(r.dates, result.Began.UTC().Format(time.DateOnly))
	}
	r.seeds, r.commits, r.dates = distinct(r.seeds), distinct(r.commits), distinct(r.dates)
	return r
}

// sum adds rows up.
func sum(rows []row) row {
	all := row{kind: "all"}
	for _, r := range rows {
		all.rounds += r.rounds
		all.kills += r.kills
		all.losses += r.losses
		all.pending += r.pending
		all.failed += r.failed
		all.hours += r.hours
		all.commits = append(all.commits, r.commits...)
		all.dates = append(all.dates, r.dates...)
	}
	all.commits, all.dates = distinct(all.commits), distinct(all.dates)
	return all
}

// readPage reads what is above the Marker of a summary. It refuses what it would not write so.
func readPage(text string) (page, error) {
	var p page
	above, _, _ := strings.Cut(text, Marker)
	heading := ""
	for l := range strings.Lines(above) {
		l = strings.TrimSuffix(l, "\n")
		if strings.HasPrefix(l, "#") {
			heading = strings.TrimLeft(l, "# ")
			continue
		}
		if !strings.HasPrefix(l, "| ") || strings.HasPrefix(l, "| kind |") || strings.HasPrefix(l, "| seed |") || strings.HasPrefix(l, "| all |") {
			continue
		}
		if err := p.take(heading, cellsOf(l)); err != nil {
			return p, fmt.Errorf("line %q of the summary: %w", l, err)
		}
	}
	return p, nil
}

// take reads a line of the table below a heading.
func (p *page) take(heading string, cells []string) error {
	var err error
	switch {
	case heading == failedHeading && len(cells) == 5:
		f := failure{kind: cells[0], commit: cells[2], cells: cells}
		f.seed, err = strconv.ParseUint(cells[1], 10, 64)
		p.failures = append(p.failures, f)
	case heading == soaksHeading && len(cells) == 10:
		s := sample{commit: cells[1], cells: cells}
		s.seed, err = strconv.ParseUint(cells[0], 10, 64)
		p.samples = append(p.samples, s)
	case heading == title && len(cells) == 11:
		var r row
		r, err = rowIn(cells)
		p.rows = append(p.rows, r)
	default:
		err = fmt.Errorf("%d cells below %q", len(cells), heading)
	}
	return err
}

// rowIn reads a row.
func rowIn(cells []string) (row, error) {
	r := row{kind: cells[0], commits: strings.Split(cells[9], ", "), dates: strings.Split(cells[10], ", ")}
	if !slices.ContainsFunc(Kinds(), func(k Kind) bool { return k.Name == r.kind }) {
		return r, fmt.Errorf("no kind has the name %q", r.kind)
	}
	var err error
	for i, n := range []*int{&r.rounds, &r.kills, &r.losses, &r.pending, &r.failed} {
		if *n, err = strconv.Atoi(cells[2+i]); err != nil {
			return r, err
		}
	}
	if r.hours, err = strconv.ParseFloat(cells[7], 64); err != nil {
		return r, err
	}
	for part := range strings.SplitSeq(cells[8], ", ") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.ParseUint(from, 10, 64)
		if err != nil {
			return r, err
		}
		end, err := strconv.ParseUint(to, 10, 64)
		if err != nil {
			return r, err
		}
		if end < first || end-first > 1<<20 {
			return r, fmt.Errorf("seeds %q: want FROM-TO", part)
		}
		for seed := first; seed <= end; seed++ {
			r.seeds = append(r.seeds, seed)
		}
	}
	r.seeds = distinct(r.seeds)
	return r, nil
}

// cellsOf takes a line of a table apart. What is escaped stays so.
func cellsOf(l string) []string {
	return strings.Split(strings.TrimSuffix(strings.TrimPrefix(l, "| "), " |"), " | ")
}

// without takes from the page what the results tell anew, and from the results what is counted by
// a row that stays: of that row some results are gone, and it cannot be taken apart.
func (p page) without(all []Result) (page, []Result) {
	var kept page
	for _, r := range p.rows {
		told := map[uint64]bool{}
		for _, result := range all {
			if r.has(result.Kind, result.Commit, result.Seed) {
				told[result.Seed] = true
			}
		}
		if len(told) == len(r.seeds) {
			continue
		}
		kept.rows = append(kept.rows, r)
		all = slices.DeleteFunc(all, func(result Result) bool { return r.has(result.Kind, result.Commit, result.Seed) })
	}
	kept.failures = slices.DeleteFunc(slices.Clone(p.failures), func(f failure) bool { return !kept.counts(f.kind, f.commit, f.seed) })
	kept.samples = slices.DeleteFunc(slices.Clone(p.samples), func(s sample) bool { return !kept.counts(Soak, s.commit, s.seed) })
	return kept, all
}

func (p page) counts(kind, commit string, seed uint64) bool {
	return slices.ContainsFunc(p.rows, func(r row) bool { return r.has(kind, commit, seed) })
}
