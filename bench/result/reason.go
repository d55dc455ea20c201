package result

import "fmt"

// noReason begins what is said where measuring has not shown why.
const noReason = "why is not known"

// reason says why s is behind other as far as the same rounds have measured it: what of
// the longer time of a run the largest measured part is. A part that is not at least half
// of it explains nothing, and then the reason is not known.
func reason(s, other *Series) string {
	more, ok := longer(s, other, func(x *Sample) float64 { return x.Spent.Seconds })
	switch {
	case !ok:
		return noReason + ": where the time of both went was not measured"
	case more <= 0:
		return noReason + ": its runs as a whole took no longer"
	}
	if s.Metric == Seconds { // of an operation: between them a run does what is not compared
		all := (s.Value - other.Value) * s.MedianOf(func(x *Sample) float64 { return float64(x.Ops) })
		if all < more/2 {
			return fmt.Sprintf("%s: a run took %s more, and only %s of that in what is compared", noReason, seconds(more), seconds(all))
		}
	}
	largest, what := 0.0, ""
	for _, part := range []struct {
		what string
		of   func(*Sample) float64
	}{
		{"processor time of its daemon", func(x *Sample) float64 { return x.DaemonCPU }},
		{"processor time of the program that works, and of the kernel for it", func(x *Sample) float64 { return x.ReaderCPU }},
		{"processor time of the server", func(x *Sample) float64 { return x.ServerCPU }},
		{"time in which the disk was busy", func(x *Sample) float64 { return x.Spent.Disk * x.Spent.Seconds }},
		{"time in which every processor waited" + asked(s, other), func(x *Sample) float64 { return x.Spent.Waiting() * x.Spent.Seconds }},
	} {
		if took, _ := longer(s, other, part.of); took > largest {
			largest, what = took, part.what
		}
	}
	if largest < more/2 {
		return fmt.Sprintf("%s: a run took %s more, and nothing that is measured is half of that", noReason, seconds(more))
	}
	return fmt.Sprintf("a run took %s more, and %s more was %s", seconds(more), seconds(largest), what)
}

// longer is by how much the median of a part is larger for s than for other; ok says
// that both were measured.
func longer(s, other *Series, of func(*Sample) float64) (more float64, ok bool) {
	for _, x := range []*Series{s, other} {
		if len(x.Samples) == 0 {
			return 0, false
		}
		for i := range x.Samples {
			if x.Samples[i].Spent == nil {
				return 0, false
			}
		}
	}
	return s.MedianOf(of) - other.MedianOf(of), true
}

// asked says how many requests to the object store s made and other did not.
func asked(s, other *Series) string {
	ours, theirs := s.MedianOf(requests), other.MedianOf(requests)
	if ours <= theirs {
		return ""
	}
	return fmt.Sprintf(" (%.0f requests to the store, %.0f of %s)", ours, theirs, other.Client)
}

// requests is how many requests of any kind the server saw in a sample.
func requests(x *Sample) float64 {
	sum := int64(0)
	for _, n := range x.Requests {
		sum += n
	}
	return float64(sum)
}
