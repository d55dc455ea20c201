package suite

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
	"github.com/pailfs/pailfs/bench/workload/growth"
)

// Growth measures pailfs while size, files, depth and readers grow, one of them at a
// time: a row for each step, with latency, memory and requests.
func (r *Runner) Growth(ctx context.Context) (result.Table, []result.Series, error) {
	t := result.Table{Columns: []string{"what grows", "work", "step", "time", "at the first step", "daemon's processor time", "daemon's peak memory", "requests"}}
	var all []result.Series
	for _, g := range growth.Axes(r.cfg.Sizes) {
		first := 0.0
		for step, said := range g.Steps {
			w, readers := g.Workload(step)
			series, err := r.Measure(ctx, w, Options{Link: w.Link(), Readers: readers}, Subject{Driver: rig.Pailfs{}})
			all = append(all, series...)
			if err != nil {
				return t, all, err
			}
			s := &series[0]
			took := s.MedianOf(func(x *result.Sample) float64 { return g.Per(x, readers) })
			if step == 0 {
				first = took
			}
			t.Rows = append(t.Rows, []string{
				g.Name, g.Work, said, result.ShowValue(took, result.Seconds), fmt.Sprintf("× %.2f", took/first),
				result.ShowValue(s.MedianOf(func(x *result.Sample) float64 { return x.DaemonCPU }), result.Seconds),
				gib(int64(s.MedianOf(func(x *result.Sample) float64 { return float64(x.DaemonPeak) }))),
				showRequests(s),
			})
		}
	}
	return t, all, nil
}

// showRequests says which requests the middle one of the samples made, by their number.
func showRequests(s *result.Series) string {
	order := slices.Clone(s.Samples)
	slices.SortFunc(order, func(a, b result.Sample) int { return int(total(a.Requests) - total(b.Requests)) })
	middle := order[len(order)/2].Requests
	said := ""
	for _, name := range slices.Sorted(maps.Keys(middle)) {
		if said != "" {
			said += ", "
		}
		said += fmt.Sprintf("%d %s", middle[name], name)
	}
	if said == "" {
		return "none"
	}
	return said
}
