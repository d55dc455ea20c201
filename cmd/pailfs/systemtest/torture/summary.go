package torture

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Marker begins what is written by hand in a summary, and kept when it is made anew.
const Marker = "<!-- What follows is written by hand. -->"

// Summary is a page about results. Before is the page that it takes the place of, whose part
// below Marker it keeps.
func Summary(all []Result, before string) string {
	var b strings.Builder
	b.WriteString("# What torture was survived\n\n")
	b.WriteString("Rendered by `make torture-sum FILES=…` from the results of `make torture`; a round is repeated by its seed. The\n")
	b.WriteString("last result of a kind and seed on a commit counts.\n\n")
	all = last(all)
	b.WriteString("| kind | what | rounds | kills | power losses | pending | failed | hours | seeds | commits | dates |\n")
	b.WriteString("|---|---|--:|--:|--:|--:|--:|--:|---|---|---|\n")
	for _, kind := range Kinds() {
		of := slices.DeleteFunc(slices.Clone(all), func(r Result) bool { return r.Kind != kind.Name })
		if len(of) > 0 {
			b.WriteString(row(kind.Name, kind.What, of))
		}
	}
	if len(all) > 0 {
		b.WriteString(row("all", "", all))
	}
	b.WriteString("\n\"Pending\" are rounds in which the bucket lacked something acknowledged when the daemon was killed or the power lost.\n")
	b.WriteString(failures(all))
	b.WriteString(soaks(all))
	b.WriteString("\n" + Marker + "\n")
	if _, notes, ok := strings.Cut(before, Marker+"\n"); ok {
		b.WriteString(notes)
	}
	return b.String()
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

func row(name, what string, of []Result) string {
	kills, losses, pending, failed, seconds := 0, 0, 0, 0, 0.0
	var seeds []uint64
	var commits, dates []string
	for _, r := range of {
		kills += r.Report.Kills
		losses += r.Report.PowerLosses
		if r.Report.Pending {
			pending++
		}
		if !r.OK {
			failed++
		}
		seconds += r.Seconds
		seeds = append(seeds, r.Seed)
		commits = append(commits, r.Commit)
		dates = append(dates, r.Began.UTC().Format(time.DateOnly))
	}
	these := ranges(seeds)
	if name == "all" {
		these = ""
	}
	return fmt.Sprintf("| %s | %s | %d | %d | %d | %d | %d | %.2f | %s | %s | %s |\n", name, what, len(of), kills, losses, pending, failed,
		seconds/3600, these, strings.Join(distinct(commits), ", "), strings.Join(distinct(dates), ", "))
}

func distinct(all []string) []string {
	slices.Sort(all)
	return slices.Compact(all)
}

// ranges writes numbers as ranges.
func ranges(seeds []uint64) string {
	slices.Sort(seeds)
	seeds = slices.Compact(seeds)
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

// failures lists what failed.
func failures(all []Result) string {
	var b strings.Builder
	for _, r := range all {
		if !r.OK {
			fmt.Fprintf(&b, "| %s | %d | %s | `%s` | %s |\n", r.Kind, r.Seed, r.Commit, r.Repeat(), oneLine(r.Failure))
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n## What failed\n\n| kind | seed | commit | repeated by | what |\n|---|--:|---|---|---|\n" + b.String()
}

// oneLine makes a text fit into a cell.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + " …"
	}
	return strings.ReplaceAll(s, "|", "\\|")
}

// soaks shows the beginning, the middle and the end of each soak.
func soaks(all []Result) string {
	var b strings.Builder
	for _, r := range all {
		s := r.Report.Samples
		if len(s) < 3 {
			continue
		}
		for i, at := range []Sample{s[0], s[len(s)/2], s[len(s)-1]} {
			fmt.Fprintf(&b, "| %d | %s | %.0f min | %d MiB | %d | %d | %d MiB | %d | %d |\n", r.Seed, []string{"start", "middle", "end"}[i],
				at.After/60, at.Resident>>20, at.Descriptors, at.Goroutines, at.DiskBytes>>20, at.DiskInodes, at.Inodes)
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n## Soaks\n\n| seed | sample | after | resident | descriptors | goroutines | disk | inodes of the disk | inodes known |\n" +
		"|--:|---|--:|--:|--:|--:|--:|--:|--:|\n" + b.String()
}
