package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// allDivided reports whether h has GPUs and all of them are divided.
func allDivided(h Host) bool {
	whole := func(d Device) bool { return d.Index >= 0 && !d.MIG.Enabled }
	divided := func(d Device) bool { return d.MIG.Enabled }
	return !slices.ContainsFunc(h.Devices, whole) && slices.ContainsFunc(h.Devices, divided)
}

// selectInstances is [Select] for instances of divided GPUs. They have no links to each
// other, so nearness means nothing: what is left should be of use to those who ask next.
func selectInstances(h Host, r Request, taken func(uuid string) bool) ([]Chosen, error) {
	r.MIG = cmp.Or(r.MIG, AnyProfile)
	var free []Chosen
	var why refusals
	freeOf := make(map[int]int) // instances by the GPU's index
	for _, d := range h.Devices {
		if !d.MIG.Enabled {
			why.add(d, "it is not divided by MIG")
			continue
		}
		left := map[string]int{}
		for i := range d.MIG.Instances {
			instance := &d.MIG.Instances[i]
			if r.MIG != AnyProfile && !strings.EqualFold(instance.Profile(), r.MIG) {
				left[fmt.Sprintf("%s is not asked for", cmp.Or(instance.Profile(), instance.UUID))]++
				continue
			}
			why.there++
			if reason := unfitInstance(d, instance, r, taken); reason != "" {
				left[reason]++
				continue
			}
			freeOf[d.Index]++
			free = append(free, Chosen{Device: d, Instance: instance})
		}
		for reason, n := range left {
			why.add(d, fmt.Sprintf("of %d of %d instances: %s", n, len(d.MIG.Instances), reason))
		}
		if len(d.MIG.Instances) == 0 {
			why.add(d, "it is divided by MIG and has no instance: make some with nvidia-smi mig -cgi")
		}
	}
	if len(free) < r.Count {
		slices.Sort(why.why)
		return nil, why.error(h, r, len(free))
	}
	slices.SortStableFunc(free, func(a, b Chosen) int {
		return cmp.Or(a.Health.State.severity()-b.Health.State.severity(), cmp.Compare(a.Instance.Memory.Total, b.Instance.Memory.Total),
			freeOf[a.Index]-freeOf[b.Index], cmp.Compare(a.Index, b.Index))
	})
	return free[:r.Count], nil
}

// unfitInstance says why an instance of d does not do for r, or nothing.
func unfitInstance(d Device, i *Instance, r Request, taken func(uuid string) bool) string {
	switch {
	case !d.works():
		return d.illness()
	case taken(i.UUID):
		return "another pailfs run has it"
	case len(i.Processes) > 0 && !r.Shared:
		return fmt.Sprintf("process %d runs on it", i.Processes[0])
	case i.Memory.Free < r.MinFree:
		return fmt.Sprintf("%d MiB are free, %d are wanted", i.Memory.Free>>20, r.MinFree>>20)
	}
	return ""
}
