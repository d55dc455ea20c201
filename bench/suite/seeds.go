package suite

import (
	"context"

	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
	"github.com/pailfs/pailfs/bench/workload"
)

// published is what a book says of the four ways in which a training job in
// Alibaba's cloud may read and write; nobody says on which machines.
type published struct{ work, ssd, fuse, nas, cpfs string }

// SeedsTable measures what a published table of ways to store says of others.
func (r *Runner) SeedsTable(ctx context.Context) (result.Table, []result.Series, error) {
	t := result.Table{Columns: []string{
		"operation", "local SSD (published)", "OSS-FUSE (published)", "NAS (published)", "CPFS (published)",
		"disk, here", "pailfs, first time, here", "pailfs, again, here",
	}}
	all := r.cfg.Sizes
	rows := []struct {
		published
		// first and again are workloads; the disk takes part in again. each makes
		// seconds of a value.
		first, again string
		each         func(value float64) float64
	}{
		{published{"sequential read of 1 GB", "~250 ms", "600–1200 ms", "400–700 ms", "80–120 ms"}, "read/seq-cold", "read/seq-ssd", func(v float64) float64 { return 1e9 / v }},
		{published{"random read of 4 KB", "~0.1 ms", "30–80 ms", "5–15 ms", "1–3 ms"}, "read/rand4k-cold", "read/rand4k-ssd", nil},
		{published{"os.listdir of 10,000 files", "~10 ms", "800–2000 ms", "200–500 ms", "50–100 ms"}, "list/10k", "list/10k" + workload.ListedAgain, func(v float64) float64 { return float64(all.ListNames) / v }},
		{published{"append 10 MB to a log", "<5 ms", "200–400 ms", "50–100 ms", "10–30 ms"}, "", "write/append", nil},
	}
	var series []result.Series
	take := func(workload string, drivers ...rig.Driver) error {
		w, err := Find(all, workload)
		if err != nil {
			return err
		}
		o := Options{Link: w.Link()}
		if workload == "read/seq-cold" {
			o.Link.Download = seedsLink
		}
		var subjects []Subject
		for _, d := range drivers {
			subjects = append(subjects, Subject{Driver: d})
		}
		s, err := r.Measure(ctx, w, o, subjects...)
		series = append(series, s...)
		return err
	}
	for _, workload := range []string{"read/seq-cold", "read/rand4k-cold"} {
		if err := take(workload, rig.Pailfs{}); err != nil {
			return t, series, err
		}
	}
	for _, workload := range []string{"read/seq-ssd", "read/rand4k-ssd", "list/10k", "write/append"} {
		if err := take(workload, rig.Pailfs{}, rig.Disk{}); err != nil {
			return t, series, err
		}
	}
	for _, row := range rows {
		show := func(workload, client string) string {
			s := find(series, workload, client)
			if len(s.Samples) == 0 {
				return "–"
			}
			seconds := s.Value
			switch {
			case row.each != nil:
				seconds = row.each(s.Value)
			case s.Metric == result.ReadsPerSecond:
				seconds = 1 / s.Value
			}
			return result.ShowValue(seconds, result.Seconds)
		}
		t.Rows = append(t.Rows, []string{
			row.work, row.ssd, row.fuse, row.nas, row.cpfs,
			show(row.again, "disk"), show(row.first, "pailfs"), show(row.again, "pailfs"),
		})
	}
	return t, series, nil
}

// seedsLink is the most that a mount in that book's clouds gets from the store.
const seedsLink = "600MB"
