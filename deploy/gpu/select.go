package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Request says which GPUs are wanted.
type Request struct {
	// Count is how many, at least 1.
	Count int
	// MinFree is how much free memory each must have, in bytes.
	MinFree uint64
	// Shared also allows GPUs on which something runs.
	Shared bool
}

// ErrNotEnough is the error of a request that this host cannot fulfil now.
var ErrNotEnough = errors.New("not enough free and healthy GPUs")

// Select returns the GPUs of h that fulfil r and lie nearest to each other:
// joined by the most NVLinks, then by the shortest paths, then on one NUMA node;
// among equals the healthiest and least busy. taken reports GPUs, by UUID, that
// somebody has; nil means none. The error wraps [ErrNotEnough] and says of every
// GPU why it was left out.
func Select(h Host, r Request, taken func(uuid string) bool) ([]Device, error) {
	if r.Count < 1 {
		return nil, fmt.Errorf("%d GPUs were asked for: want 1 or more", r.Count)
	}
	var free []Device
	var why []string
	for _, d := range h.Devices {
		if reason := unfit(d, r, taken); reason != "" {
			why = append(why, fmt.Sprintf("GPU %d (%s): %s", d.Index, d.UUID, reason))
			continue
		}
		free = append(free, d)
	}
	if len(free) < r.Count {
		if len(h.Devices) == 0 {
			for _, reason := range h.Health.Reasons {
				why = append(why, reason.Message)
			}
		}
		return nil, fmt.Errorf("%w: %d asked for, %d to be had of %d; %s", ErrNotEnough, r.Count, len(free), len(h.Devices), strings.Join(why, "; "))
	}
	slices.SortStableFunc(free, func(a, b Device) int {
		return cmp.Or(a.Health.State.severity()-b.Health.State.severity(), cmp.Compare(a.Utilization, b.Utilization),
			cmp.Compare(b.Memory.Free, a.Memory.Free), cmp.Compare(a.Index, b.Index))
	})
	best := nearest(free, r.Count, h.Links)
	slices.SortFunc(best, func(a, b Device) int { return a.Index - b.Index })
	return best, nil
}

// unfit says why d does not do for r, or nothing.
func unfit(d Device, r Request, taken func(uuid string) bool) string {
	switch {
	case d.Health.State != Healthy && d.Health.State != Degraded:
		return string(d.Health.State) + ", " + d.Health.Reasons[0].Message
	case taken != nil && taken(d.UUID):
		return "another pailfs run has it"
	case d.MIG.Enabled:
		return "it is divided by MIG: its instances are not chosen here, set CUDA_VISIBLE_DEVICES yourself"
	case len(d.Processes) > 0 && !r.Shared:
		return fmt.Sprintf("%d processes run on it, %s (%d) the first", len(d.Processes), d.Processes[0].Name, d.Processes[0].PID)
	case d.Memory.Free < r.MinFree:
		return fmt.Sprintf("%d MiB are free, %d are wanted", d.Memory.Free>>20, r.MinFree>>20)
	}
	return ""
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

// Lease is the claim of one program of this host to GPUs. It ends with the
// program.
type Lease struct {
	// Devices are the GPUs.
	Devices []Device
	files   []*os.File
}

// LockDir is where the lock files of a host's GPUs lie: programs of all users must
// find them.
const LockDir = "/run/lock/pailfs-gpu"

// Acquire selects GPUs that no other lease holds and takes them. dir holds one
// lock file a GPU; it is made if it is not there.
func Acquire(dir string, h Host, r Request) (*Lease, error) {
	if err := os.Mkdir(dir, 0o777|os.ModeSticky); err == nil {
		// Any user may make the lock of a GPU; the umask would forbid it.
		if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
			return nil, err
		}
	} else if !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	busy := make(map[string]bool)
	for {
		devices, err := Select(h, r, func(uuid string) bool { return busy[uuid] })
		if err != nil {
			return nil, err
		}
		lease := &Lease{Devices: devices}
		lost, err := lease.lock(dir)
		if err == nil {
			return lease, nil
		}
		lease.Release()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, err
		}
		busy[lost] = true
	}
}

// lock takes the lock of every device or says which one it did not get.
func (l *Lease) lock(dir string) (lost string, err error) {
	for _, d := range l.Devices {
		f, err := openLock(filepath.Join(dir, d.UUID+".lock"))
		if err != nil {
			return d.UUID, err
		}
		l.files = append(l.files, f)
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			return d.UUID, err
		}
	}
	return "", nil
}

// openLock opens a lock file, which anybody may have made: a lock needs no right
// to write, and fs.protected_regular refuses O_CREAT on another's file.
func openLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		f, err = os.OpenFile(path, os.O_RDONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o644)
	}
	return f, err
}

// Release gives the GPUs back.
func (l *Lease) Release() {
	for _, f := range l.files {
		_ = f.Close() // which unlocks it
	}
	l.files = nil
}
