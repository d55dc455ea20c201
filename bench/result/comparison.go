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

// WriteMarkdown writes the tables for README.md.
func (c Comparison) WriteMarkdown(w io.Writer, r *Report) error {
	var b strings.Builder
	r.writeMachine(&b)
	b.WriteString("| workload | link | client | median | least–most | of the limit | of the best peer | CPU of client | peak memory | requests |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, row := range c.Rows(r) {
		limit := row.Best(c.limit)
		peer := row.Best(func(s *Series) bool { return !c.own(s) && !c.limit(s) })
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
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s – %s | %s | %s | %s | %s | %.0f |\n", name, row.Link, s.Client, s.Show(),
				ShowValue(least, s.Metric), ShowValue(most, s.Metric), times(s, limit), ofPeer,
				seconds(s.medianOf(func(x *Sample) float64 { return x.DaemonCPU })),
				scaled(s.medianOf(func(x *Sample) float64 { return float64(x.DaemonPeak) }), "B"),
				s.medianOf(func(x *Sample) float64 {
					sum := int64(0)
					for _, n := range x.Requests {
						sum += n
					}
					return float64(sum)
				}))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// clip makes one short line of an error that may hold a log.
func clip(s string) string {
	s = strings.NewReplacer("|", "/", "\n", " ").Replace(s)
	if len(s) > 160 {
		s = s[:160] + "…"
	}
	return s
}
