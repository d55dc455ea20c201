package gpu

import (
	"cmp"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// paths names the levels of nvml.h's nvmlGpuTopologyLevel_t, the nearest first.
var paths = []struct {
	level nvml.GpuTopologyLevel
	name  string
}{
	{nvml.TOPOLOGY_INTERNAL, "internal"},
	{nvml.TOPOLOGY_SINGLE, "switch"},
	{nvml.TOPOLOGY_MULTIPLE, "switches"},
	{nvml.TOPOLOGY_HOSTBRIDGE, "host-bridge"},
	{nvml.TOPOLOGY_NODE, "node"},
	{nvml.TOPOLOGY_SYSTEM, "system"},
}

// distance orders paths; what is unknown is farthest.
func distance(path string) int {
	for i, p := range paths {
		if p.name == path {
			return i
		}
	}
	return len(paths)
}

// before orders links, the nearest pair first.
func (l Link) before(other Link) int {
	return cmp.Or(cmp.Compare(other.NVLinks, l.NVLinks), cmp.Compare(distance(l.Path), distance(other.Path)),
		cmp.Compare(l.A, other.A), cmp.Compare(l.B, other.B))
}

// links returns how near the devices are to each other. Handles are nil where a
// device could not be read.
func (p probe) links(devices []Device, handles []nvml.Device) []Link {
	peers := make([]map[string]int, len(handles))
	for i, h := range handles {
		if h != nil {
			peers[i] = p.nvlinks(h)
		}
	}
	var list []Link
	for a := range handles {
		for b := a + 1; b < len(handles); b++ {
			if handles[a] == nil || handles[b] == nil {
				continue
			}
			l := Link{A: devices[a].Index, B: devices[b].Index, NVLinks: peers[a][devices[b].PCI], Path: "system"}
			if level, ret := handles[a].GetTopologyCommonAncestor(handles[b]); ret == nvml.SUCCESS {
				for _, path := range paths {
					if path.level == level {
						l.Path = path.name
					}
				}
			}
			list = append(list, l)
		}
	}
	slices.SortFunc(list, Link.before)
	return list
}

// nvlinks counts the active NVLinks of h by the PCI address at their other end.
// Behind an NVSwitch that is the switch's address: such GPUs are all equally near.
func (p probe) nvlinks(h nvml.Device) map[string]int {
	count := make(map[string]int)
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := h.GetNvLinkState(link)
		if ret != nvml.SUCCESS {
			break
		}
		if state != nvml.FEATURE_ENABLED {
			continue
		}
		if remote, ret := h.GetNvLinkRemotePciInfo(link); ret == nvml.SUCCESS {
			count[busID(remote.Domain, remote.Bus, remote.Device)]++
		}
	}
	return count
}
