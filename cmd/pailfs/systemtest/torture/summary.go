package torture

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Marker begins what is written by hand in a summary, and kept when it is made anew.
const Marker = "<!-- What follows is written by hand. -->"

// The headings of the parts of a summary.
const (
	title         = "What torture was survived"
	failedHeading = "What failed"
	soaksHeading  = "Soaks"
)

// Summary is a page about results. Before is the page that it takes the place of: its rows of
// which not all results are given stay as they are, and so does what is below Marker. It fails
// if before has a table that it would not have written.
func Summary(all []Result, before string) (string, error) {
	p, err := readPage(before)
	if err != nil {
		return "", err
	}
	p, all = p.without(last(all))
	p.add(all)
	var b strings.Builder
	b.WriteString("# " + title + "\n\n")
	b.WriteString("Rendered by `make torture-sum FILES=…` from the results of `make torture`; a round is repeated by its seed. The\n")
	b.WriteString("last result of a kind and seed on a commit counts. A row of which the results are not in FILES stays as it was.\n\n")
	b.WriteString("| kind | what | rounds | kills | power losses | pending | failed | hours | seeds | commits | dates |\n")
	b.WriteString("|---|---|--:|--:|--:|--:|--:|--:|---|---|---|\n")
	for _, r := range p.rows {
		b.WriteString(r.String())
	}
	if len(p.rows) > 0 {
		b.WriteString(sum(p.rows).String())
	}
	b.WriteString("\n\"Pending\" are rounds in which the bucket lacked something acknowledged when the daemon was killed or the power lost.\n")
	if len(p.failures) > 0 {
		b.WriteString("\n## " + failedHeading + "\n\n| kind | seed | commit | repeated by | what |\n|---|--:|---|---|---|\n")
		for _, f := range p.failures {
			b.WriteString(line(f.cells...))
		}
	}
	if len(p.samples) > 0 {
		b.WriteString("\n## " + soaksHeading + "\n\n| seed | commit | sample | after | resident | descriptors | goroutines | disk | inodes of the disk | inodes known |\n" +
			"|--:|---|---|--:|--:|--:|--:|--:|--:|--:|\n")
		for _, s := range p.samples {
			b.WriteString(line(s.cells...))
		}
	}
	b.WriteString("\n" + Marker + "\n")
	if _, notes, ok := strings.Cut(before, Marker+"\n"); ok {
		b.WriteString(notes)
	}
	return b.String(), nil
}

// last returns the last result of each kind, seed and commit, in order.
func last(all []Result) []Result {
	type id struct {
		kind, commit string
		seed         uint64
	}
	found := map[id]Result{}
	for _, r := range all {
		at := id{r.Kind, r.Commit, r.Seed}
		if was, ok := found[at]; !ok || !r.Began.Before(was.Began) {
			found[at] = r
		}
	}
	kept := make([]Result, 0, len(found))
	for _, r := range found {
		kept = append(kept, r)
	}
	slices.SortFunc(kept, func(a, b Result) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Seed, b.Seed), a.Began.Compare(b.Began))
	})
	return kept
}

// add adds results, with a row for each kind and commit, and puts everything in order.
func (p *page) add(all []Result) {
	type id struct{ kind, commit string }
	of := map[id][]Result{}
	for _, r := range all {
		of[id{r.Kind, r.Commit}] = append(of[id{r.Kind, r.Commit}], r)
		if !r.OK {
			p.failures = append(p.failures, failure{kind: r.Kind, commit: r.Commit, seed: r.Seed, cells: []string{
				r.Kind, fmt.Sprint(r.Seed), r.Commit, "`" + r.Repeat() + "`", oneLine(r.Failure),
			}})
		}
		p.samples = append(p.samples, samplesOf(r)...)
	}
	for at, results := range of {
		p.rows = append(p.rows, rowOf(at.kind, results))
	}
	slices.SortFunc(p.rows, func(a, b row) int {
		return cmp.Or(order(a.kind, b.kind), slices.Compare(a.dates, b.dates), slices.Compare(a.commits, b.commits), slices.Compare(a.seeds, b.seeds))
	})
	slices.SortStableFunc(p.failures, func(a, b failure) int {
		return cmp.Or(order(a.kind, b.kind), cmp.Compare(a.seed, b.seed), cmp.Compare(a.commit, b.commit))
	})
	slices.SortStableFunc(p.samples, func(a, b sample) int {
		return cmp.Or(cmp.Compare(a.seed, b.seed), cmp.Compare(a.commit, b.commit))
	})
}

// order compares kinds by the order in which they are told.
func order(a, b string) int {
	at := func(name string) int {
		return slices.IndexFunc(Kinds(), func(k Kind) bool { return k.Name == name })
	}
	return cmp.Compare(at(a), at(b))
}

// samplesOf shows the beginning, the middle and the end of a soak.
func samplesOf(r Result) []sample {
	s := r.Report.Samples
	if len(s) < 3 {
		return nil
	}
	var shown []sample
	for i, at := range []Sample{s[0], s[len(s)/2], s[len(s)-1]} {
		shown = append(shown, sample{commit: r.Commit, seed: r.Seed, cells: []string{
			fmt.Sprint(r.Seed), r.Commit, []string{"start", "middle", "end"}[i], fmt.Sprintf("%.0f min", at.After/60),
			fmt.Sprintf("%d MiB", at.Resident>>20), fmt.Sprint(at.Descriptors), fmt.Sprint(at.Goroutines),
			fmt.Sprintf("%d MiB", at.DiskBytes>>20), fmt.Sprint(at.DiskInodes), fmt.Sprint(at.Inodes),
		}})
	}
	return shown
}

func distinct[T cmp.Ordered](all []T) []T {
	slices.Sort(all)
	return slices.Compact(all)
}

// ranges writes numbers, sorted and each once, as ranges.
func ranges(seeds []uint64) string {
	var parts []string
	for i := 0; i < len(seeds); {
		end := i
		for end+1 < len(seeds) && seeds[end+1] == seeds[end]+1 {
			end++
		}
		if end == i {
			parts = append(parts, fmt.Sprint(seeds[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", seeds[i], seeds[end]))
		}
		i = end + 1
	}
	return strings.Join(parts, ", ")
}

// oneLine makes a text fit into a cell.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + " …"
	}
	return strings.ReplaceAll(s, "|", "\\|")
}
