package result

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Comparison is every client's work at every workload, from the series of one
// run.
type Comparison struct {
	// Limits are the clients that no file system can beat, such as disk and bare;
	// Subject is the one that the comparison is about. All others are peers.
	Limits  []string
	Subject string
}

// Row is one workload.
type Row struct {
	Workload, Link, How string
	Metric              Metric
	Series              []*Series
}

// Rows groups the series of r by workload, in the order in which they came.
func (c Comparison) Rows(r *Report) []Row {
	var rows []Row
	for i := range r.Series {
		s := &r.Series[i]
		at := slices.IndexFunc(rows, func(x Row) bool { return x.Workload == s.Workload && x.Link == s.Link && x.How == s.How })
		if at < 0 {
			at = len(rows)
			rows = append(rows, Row{Workload: s.Workload, Link: s.Link, How: s.How, Metric: s.Metric})
		}
		rows[at].Series = append(rows[at].Series, s)
	}
	for i := range rows {
		slices.SortStableFunc(rows[i].Series, func(a, b *Series) int { return cmp.Compare(c.rank(a), c.rank(b)) })
	}
	return rows
}

// rank puts the subject first, then limits, then peers.
func (c Comparison) rank(s *Series) int {
	switch {
	case c.own(s):
		return 0
	case c.limit(s):
		return 1
	}
	return 2
}

func (c Comparison) own(s *Series) bool {
	return s.Client == c.Subject || strings.HasPrefix(s.Client, c.Subject+"-")
}

func (c Comparison) limit(s *Series) bool {
	name, _, _ := strings.Cut(s.Client, ",")
	return slices.Contains(c.Limits, name)
}

// Best returns the best of the series of row that pick chooses and that did not
// fail, nil if there is none.
func (row *Row) Best(pick func(*Series) bool) *Series {
	var best *Series
	for _, s := range row.Series {
		if s.Failed == "" && pick(s) && (best == nil || Times(s, best) > 1) {
			best = s
		}
	}
	return best
}

// Times says how many times as good a is as b.
func Times(a, b *Series) float64 {
	if a.Metric == Seconds || a.Metric == Requests || a.Metric == ResidentBytes {
		return b.Value / a.Value
	}
	return a.Value / b.Value
}

// times writes how s compares with other, a dash where there is nothing to
// compare or the server was what was measured.
func times(s, other *Series) string {
	if s == nil || other == nil || s == other || s.Failed != "" {
		return "–"
	}
	if max(s.ServerShare(), other.ServerShare()) > MaxServerShare {
		return "refused: the server used most of the machine"
	}
	t := Times(s, other)
	if math.IsNaN(t) || math.IsInf(t, 0) {
		return "–"
	}
	return fmt.Sprintf("%.2f", t)
}

// WriteMarkdown writes the tables for their page.
func (c Comparison) WriteMarkdown(w io.Writer, r *Report) error {
	var b strings.Builder
	r.writeMachine(&b)
	b.WriteString("| workload | link | client | median | least–most | of the limit | of the best peer | CPU of client | peak memory | requests |\n|---|---|---|---|---|---|---|---|---|---|\n")
	rows := c.Rows(r)
	for _, row := range rows {
		limit := row.Best(c.limit)
		peer := row.Best(func(s *Series) bool { return !c.own(s) && !c.limit(s) })
		runs := 0
		for _, s := range row.Series {
			runs = max(runs, len(s.Samples))
		}
		for _, s := range row.Series {
			name := strings.TrimSpace(row.Workload + " " + row.How)
			if s.Failed != "" {
				fmt.Fprintf(&b, "| %s | %s | %s | **failed** | %s | | | | | |\n", name, row.Link, s.Client, clip(s.Failed))
				continue
			}
			least, most := s.Range()
			ofPeer := "–"
			if c.own(s) {
				ofPeer = times(s, peer)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s – %s | %s | %s | %s | %s | %.0f |\n", name, row.Link, s.Client, s.Show()+fewer(len(s.Samples), runs),
				ShowValue(least, s.Metric), ShowValue(most, s.Metric), times(s, limit), ofPeer,
				seconds(s.MedianOf(func(x *Sample) float64 { return x.DaemonCPU })),
				scaled(s.MedianOf(func(x *Sample) float64 { return float64(x.DaemonPeak) }), "B"),
				s.MedianOf(requests))
		}
	}
	c.writeBehind(&b, rows)
	_, err := io.WriteString(w, b.String())
	return err
}

// fewer says of how many runs a median is where others have more.
func fewer(samples, runs int) string {
	switch samples {
	case runs:
		return ""
	case 1:
		return " (one run)"
	}
	return fmt.Sprintf(" (%d runs)", samples)
}

// behindPeer and behindLimit are the ratios below which a footnote says so: nearer
// ones are within what runs differ by.
const (
	behindPeer  = 0.95
	behindLimit = 0.5
)

// writeBehind says at which workloads the subject, in each of its configurations, is
// behind the best peer, or has less than half of the limit, and why as far as that was measured.
func (c Comparison) writeBehind(b *strings.Builder, rows []Row) {
	b.WriteString("\nWhere it is behind:\n\n")
	none := true
	for _, row := range rows {
		limit, peer := row.Best(c.limit), row.Best(func(s *Series) bool { return !c.own(s) && !c.limit(s) })
		for _, s := range row.Series {
			if !c.own(s) || s.Failed != "" {
				continue
			}
			for _, other := range []struct {
				series *Series
				bound  float64
			}{{peer, behindPeer}, {limit, behindLimit}} {
				if other.series == nil || max(s.ServerShare(), other.series.ServerShare()) > MaxServerShare {
					continue
				}
				if t := Times(s, other.series); t < other.bound {
					none = false
					fmt.Fprintf(b, "- `%s`, %s: %.2f of %s (%s, %s); %s.\n", row.Workload, s.Client, t, other.series.Client, s.Show(), other.series.Show(), reason(s, other.series))
				}
			}
		}
	}
	if none {
		b.WriteString("- nowhere by more than 5 % of a peer, or half of the limit.\n")
	}
}

// clip makes one short line of an error that may hold a log.
func clip(s string) string {
	s = strings.NewReplacer("|", "/", "\n", " ").Replace(s)
	if len(s) > 160 {
		s = s[:160] + "…"
	}
	return s
}
