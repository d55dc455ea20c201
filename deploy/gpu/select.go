package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Request says which GPUs are wanted.
type Request struct {
	// Count is how many, at least 1.
	Count int
	// MinFree is how much free memory each must have, in bytes.
	MinFree uint64
	// Shared also allows GPUs on which something runs.
	Shared bool
	// MIG asks for instances of divided GPUs: of a profile such as 1g.10gb, or of
	// [AnyProfile]. Empty asks for whole GPUs, and for any instances where every GPU
	// of the host is divided.
	MIG string
}

// AnyProfile as a request's MIG takes instances of all sizes.
const AnyProfile = "any"

// Chosen is a GPU, or an instance of one, that was selected.
type Chosen struct {
	Device
	// Instance is nil for a whole GPU.
	Instance *Instance
}

// ID is the name that CUDA_VISIBLE_DEVICES takes.
func (c Chosen) ID() string {
	if c.Instance != nil {
		return c.Instance.UUID
	}
	return c.UUID
}

// String names it for people.
func (c Chosen) String() string {
	if c.Instance != nil {
		return fmt.Sprintf("%d (%s)", c.Index, c.Instance.Name)
	}
	return fmt.Sprintf("%d (%s)", c.Index, c.Name)
}

var (
	// ErrNotEnough is the error of a request that this host cannot fulfil now.
	ErrNotEnough = errors.New("not enough free and healthy GPUs")
	// ErrTooFew is the error, beside [ErrNotEnough], of one that it never can as it is.
	ErrTooFew = errors.New("the host has too few")
)

// Select returns the GPUs of h that fulfil r and lie nearest to each other:
// joined by the most NVLinks, then by the shortest paths, then on one NUMA node;
// among equals the healthiest and least busy. Of instances it returns the smallest
// that do, and those of GPUs of which the least is free (mig.go). taken reports GPUs
// and instances, by UUID, that somebody has; nil means none. The error wraps
// [ErrNotEnough] and says of every GPU why it was left out.
func Select(h Host, r Request, taken func(uuid string) bool) ([]Chosen, error) {
	if r.Count < 1 {
		return nil, fmt.Errorf("%d GPUs were asked for: want 1 or more", r.Count)
	}
	if taken == nil {
		taken = func(string) bool { return false }
	}
	if r.MIG != "" || allDivided(h) {
		return selectInstances(h, r, taken)
	}
	var free []Device
	var why refusals
	for _, d := range h.Devices {
		if d.Index >= 0 {
			why.there++
		}
		if reason := unfit(d, r, taken); reason != "" {
			why.add(d, reason)
			continue
		}
		free = append(free, d)
	}
	if len(free) < r.Count {
		return nil, why.error(h, r, len(free))
	}
	slices.SortStableFunc(free, func(a, b Device) int {
		return cmp.Or(a.Health.State.severity()-b.Health.State.severity(), cmp.Compare(a.Utilization, b.Utilization),
			cmp.Compare(b.Memory.Free, a.Memory.Free), cmp.Compare(a.Index, b.Index))
	})
	var chosen []Chosen
	for _, d := range nearest(free, r.Count, h.Links) {
		chosen = append(chosen, Chosen{Device: d})
	}
	slices.SortFunc(chosen, func(a, b Chosen) int { return a.Index - b.Index })
	return chosen, nil
}

// refusals are the reasons for which GPUs or instances were left out.
type refusals struct {
	// there counts what of the kind that is asked for the host has, free or not.
	there int
	why   []string
}

func (w *refusals) add(d Device, reason string) {
	w.why = append(w.why, fmt.Sprintf("GPU %d (%s): %s", d.Index, d.UUID, reason))
}

// error says that only some of what r asks for is free.
func (w *refusals) error(h Host, r Request, free int) error {
	kind := ErrNotEnough
	if w.there < r.Count {
		kind = fmt.Errorf("%w: %w", ErrNotEnough, ErrTooFew)
	}
	if len(h.Devices) == 0 {
		for _, reason := range h.Health.Reasons {
			w.why = append(w.why, reason.Message)
		}
	}
	of := "GPUs"
	if r.MIG != "" {
		of = "MIG instances (" + r.MIG + ")"
	}
	err := fmt.Errorf("%w: %d asked for, %d to be had of %d %s", kind, r.Count, free, w.there, of)
	if len(w.why) > 0 {
		err = fmt.Errorf("%w; %s", err, strings.Join(w.why, "; "))
	}
	return err
}

// unfit says why d does not do for r as a whole, or nothing.
func unfit(d Device, r Request, taken func(uuid string) bool) string {
	switch {
	case !d.works():
		return d.illness()
	case taken(d.UUID):
		return "another pailfs run has it"
	case d.MIG.Enabled:
		return fmt.Sprintf("it is divided by MIG into %d instances: ask for those with --mig", len(d.MIG.Instances))
	case len(d.Processes) > 0 && !r.Shared:
		return fmt.Sprintf("%d processes run on it, %s (%d) the first", len(d.Processes), d.Processes[0].Name, d.Processes[0].PID)
	case d.Memory.Free < r.MinFree:
		return fmt.Sprintf("%d MiB are free, %d are wanted", d.Memory.Free>>20, r.MinFree>>20)
	}
	return ""
}

// works reports whether d may be given work.
func (d Device) works() bool { return d.Health.State == Healthy || d.Health.State == Degraded }

// illness says why it may not.
func (d Device) illness() string {
	return string(d.Health.State) + ", " + d.Health.Reasons[0].Message
}

// nearest returns n of free, which is ordered by preference. From every GPU it
// grows a group by whoever is nearest to it, and keeps the best group: what that
// misses of the best of all sets is little on real boards, and it is fast for any
// number of GPUs.
func nearest(free []Device, n int, links []Link) []Device {
	between := make(map[[2]int]Link)
	for _, l := range links {
		between[[2]int{l.A, l.B}], between[[2]int{l.B, l.A}] = l, l
	}
	cost := func(group []Device, d Device) score {
		var s score
		for _, g := range group {
			l, ok := between[[2]int{g.Index, d.Index}]
			if !ok {
				l.Path = ""
			}
			s.unlinked -= l.NVLinks
			s.distance += distance(l.Path)
			if g.NUMA != d.NUMA {
				s.numa++
			}
		}
		s.unwell = d.Health.State.severity()
		return s
	}
	var best []Device
	var least score
	for first := range free {
		group := []Device{free[first]}
		total := score{unwell: free[first].Health.State.severity()}
		for len(group) < n {
			next, price := -1, score{}
			for i, d := range free {
				if slices.ContainsFunc(group, func(g Device) bool { return g.Index == d.Index }) {
					continue
				}
				if s := cost(group, d); next < 0 || s.compare(price) < 0 {
					next, price = i, s
				}
			}
			group = append(group, free[next])
			total = total.plus(price)
		}
		if best == nil || total.compare(least) < 0 {
			best, least = group, total
		}
	}
	return best
}

// score says how bad a group is: the fields in the order of their weight.
type score struct{ unwell, unlinked, distance, numa int }

func (s score) compare(o score) int {
	return cmp.Or(cmp.Compare(s.unwell, o.unwell), cmp.Compare(s.unlinked, o.unlinked), cmp.Compare(s.distance, o.distance), cmp.Compare(s.numa, o.numa))
}

func (s score) plus(o score) score {
	return score{s.unwell + o.unwell, s.unlinked + o.unlinked, s.distance + o.distance, s.numa + o.numa}
}
