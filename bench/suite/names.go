package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pailfs/pailfs/bench/child"
	"github.com/pailfs/pailfs/bench/machine"
	"github.com/pailfs/pailfs/bench/names"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
	"github.com/pailfs/pailfs/bench/workload/list"
)

// frozenMount is a mount of the manifest of all trees.
type frozenMount struct {
	session rig.Session
	place   rig.Place
}

// mountFrozen mounts the manifest anew.
func (r *Runner) mountFrozen(ctx context.Context) (*frozenMount, error) {
	if err := r.serve(ctx, rig.Link{}); err != nil {
		return nil, err
	}
	file := filepath.Join(r.cfg.Work, "names.manifest")
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		r.cfg.Say("writing the manifest of %d names", r.cfg.Sizes.ListNames+r.cfg.Sizes.WideNames+r.cfg.Sizes.TreeDirs*r.cfg.Sizes.TreeNames)
		if err := names.WriteManifest(ctx, file, list.Root, list.Trees(r.cfg.Sizes)); err != nil {
			return nil, err
		}
	}
	place, err := r.place("names")
	if err != nil {
		return nil, err
	}
	session, err := rig.Pailfs{Variant: "frozen"}.With("--manifest", file).Start(ctx, place)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(place.Work))
	}
	return &frozenMount{session, place}, nil
}

func (m *frozenMount) root() string { return filepath.Join(m.place.Work, "mnt") }

func (m *frozenMount) stop(ctx context.Context) error {
	return errors.Join(m.session.Stop(context.WithoutCancel(ctx)), os.RemoveAll(m.place.Work))
}

// listing carries a job out in a process of its own and returns its seconds.
func (r *Runner) listing(ctx context.Context, root, tree string, pattern names.Pattern) (float64, error) {
	seconds, _, err := r.listingCost(ctx, root, tree, pattern)
	return seconds, err
}

// listingCost does the same and says what processor time it took.
func (r *Runner) listingCost(ctx context.Context, root, tree string, pattern names.Pattern) (float64, child.CPU, error) {
	out, cpu, err := child.Run[names.Outcome](ctx, []string{r.cfg.Self, "names-job"}, names.Job{Root: root, Tree: list.Trees(r.cfg.Sizes)[tree], Pattern: pattern})
	if err != nil {
		return 0, cpu, fmt.Errorf("list %s (%s): %w", root, pattern, err)
	}
	return out.Seconds, cpu, nil
}

// figure completes a target with what was measured in each run.
func figure(t result.Target, measured []float64, subject, reference string) result.Target {
	t.Measured, t.Least, t.Most = result.Median(measured), measured[0], measured[0]
	for _, v := range measured {
		t.Least, t.Most = min(t.Least, v), max(t.Most, v)
	}
	t.Subject, t.Reference = subject, reference
	return t
}

// takeList lists a directory as data sets have, with a mount that nobody has used,
// and again.
func takeList(ctx context.Context, r *Runner) (Taken, error) {
	var first, again, requests []float64
	for range r.cfg.Runs {
		if err := r.listOnce(ctx, &first, &again, &requests); err != nil {
			return Taken{}, err
		}
	}
	work := fmt.Sprintf("names of a directory of %d, manifest frozen", r.cfg.Sizes.ListNames)
	at := func(name, work string, want float64) result.Target {
		return result.Target{Name: name, Work: work, Against: "the clock", Want: want, AtMost: true, Unit: "ms"}
	}
	count := result.Target{Name: "list-requests", Work: work + ", first time and again", Against: "the server's counters", AtMost: true, Unit: "requests"}
	return Taken{Targets: []result.Target{
		figure(at("list-first", work+", first time", 10), first, "–", "–"),
		figure(at("list-again", work+", again", 2), again, "–", "–"),
		figure(count, requests, "–", "–"),
	}}, nil
}

func (r *Runner) listOnce(ctx context.Context, first, again, requests *[]float64) (err error) {
	m, err := r.mountFrozen(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.stop(ctx)) }()
	if err := r.server.ResetStats(ctx); err != nil {
		return err
	}
	root := filepath.Join(m.root(), list.Ordinary)
	for _, into := range []*[]float64{first, again} {
		seconds, err := r.listing(ctx, root, list.Ordinary, names.Names)
		if err != nil {
			return err
		}
		*into = append(*into, 1000*seconds)
	}
	stats, err := r.server.Stats(ctx)
	if err != nil {
		return err
	}
	total := int64(0)
	for _, n := range stats.Requests {
		total += n
	}
	*requests = append(*requests, float64(total))
	r.cfg.Say("  listed in %.2f ms, again in %.2f ms, %d requests", last(*first), last(*again), total)
	return nil
}

func last(v []float64) float64 { return v[len(v)-1] }

// takeListLarge lists one very large directory, each time with a mount that nobody
// has used, beside a go-fuse program that has the same names in its memory.
func takeListLarge(ctx context.Context, r *Runner) (Taken, error) {
	var plain, grown, attributes, memory, ratio []float64
	files := float64(r.cfg.Sizes.WideNames)
	for range r.cfg.Runs {
		seconds, bytes, err := r.listWide(ctx, names.Names)
		if err != nil {
			return Taken{}, err
		}
		plain, grown = append(plain, files/seconds), append(grown, float64(bytes))
		if seconds, _, err = r.listWide(ctx, names.Attributes); err != nil {
			return Taken{}, err
		}
		attributes = append(attributes, files/seconds)
		if seconds, err = r.listMemory(ctx, names.Attributes); err != nil {
			return Taken{}, err
		}
		memory = append(memory, files/seconds)
		ratio = append(ratio, last(attributes)/last(memory))
		r.cfg.Say("  %.0f names/s, memory grew by %.0f MB; with attributes %.0f names/s, go-fuse tree in memory %.0f names/s",
			last(plain), last(grown)/1e6, last(attributes), last(memory))
	}
	work := fmt.Sprintf("directory of %d names, manifest frozen, first time", r.cfg.Sizes.WideNames)
	rate := func(v []float64) string { return fmt.Sprintf("%.0f names/s", result.Median(v)) }
	return Taken{Targets: []result.Target{
		figure(result.Target{Name: "list-large-names", Work: work + ", names only", Against: "the clock", Want: 1e6, Unit: "names/s"}, plain, rate(plain), "–"),
		figure(result.Target{Name: "list-large-memory", Work: work + ", names only: growth of the daemon's memory", Against: "32 MiB of decoded blocks", Want: 100e6, AtMost: true, Unit: "B"}, grown, "–", "–"),
		figure(result.Target{Name: "list-large-attributes", Work: work + ", with attributes (this or the next)", Against: "the clock", Want: 90_000, Unit: "names/s"}, attributes, rate(attributes), "–"),
		figure(result.Target{Name: "list-large-attributes-memory", Work: work + ", with attributes", Against: "a go-fuse tree in memory", Want: 0.8}, ratio, rate(attributes), rate(memory)),
	}}, nil
}

// listWide lists the large directory once through a new mount, and says by how much
// the daemon grew.
func (r *Runner) listWide(ctx context.Context, pattern names.Pattern) (seconds float64, grown int64, err error) {
	m, err := r.mountFrozen(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, m.stop(ctx)) }()
	pid := m.session.Daemons()[0]
	before, err := machine.MemoryOf(pid)
	if err != nil {
		return 0, 0, err
	}
	if err := machine.ResetPeak(pid); err != nil {
		return 0, 0, err
	}
	if seconds, err = r.listing(ctx, filepath.Join(m.root(), list.Wide), list.Wide, pattern); err != nil {
		return 0, 0, err
	}
	after, err := machine.MemoryOf(pid)
	return seconds, after.PeakBytes - before.NowBytes, err
}

// listMemory does the same with the go-fuse tree.
func (r *Runner) listMemory(ctx context.Context, pattern names.Pattern) (seconds float64, err error) {
	place, err := r.place("names")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(place.Work)) }()
	t, err := rig.StartMemoryTree(ctx, r.cfg.Self, place.Work, 1, r.cfg.Sizes.WideNames)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.Stop()) }()
	return r.listing(ctx, t.Root(), list.Wide, pattern)
}

// takeTree runs find over many directories, beside the same tree on the disk, all
// that both kernels' caches can hold being there.
func takeTree(ctx context.Context, r *Runner) (taken Taken, err error) {
	disk := filepath.Join(r.cfg.Work, "disk", "names")
	tree := list.Trees(r.cfg.Sizes)[list.Deep]
	r.cfg.Say("writing %d empty files to the disk", tree.All())
	defer func() { err = errors.Join(err, os.RemoveAll(disk)) }()
	if err := tree.WriteDisk(ctx, disk); err != nil {
		return Taken{}, err
	}
	m, err := r.mountFrozen(ctx)
	if err != nil {
		return Taken{}, err
	}
	defer func() { err = errors.Join(err, m.stop(ctx)) }()
	root := filepath.Join(m.root(), list.Deep)
	var ours, theirs, ratio []float64
	for run := range r.cfg.Runs + 1 {
		a, err := r.listing(ctx, root, list.Deep, names.Find)
		if err != nil {
			return Taken{}, err
		}
		b, err := r.listing(ctx, disk, list.Deep, names.Find)
		if err != nil {
			return Taken{}, err
		}
		if run == 0 {
			r.cfg.Say("  first time: %.2f s through the mount, %.2f s on the disk", a, b)
			continue
		}
		ours, theirs, ratio = append(ours, a), append(theirs, b), append(ratio, b/a)
		r.cfg.Say("  warm: %.2f s through the mount, %.2f s on the disk", a, b)
	}
	t := result.Target{
		Name: "tree", Work: fmt.Sprintf("find -type f with stat, %d files in %d directories, warm, manifest frozen", tree.All(), tree.Dirs),
		Against: "the disk itself", Want: 0.5,
	}
	return Taken{Targets: []result.Target{
		figure(t, ratio, result.ShowValue(result.Median(ours), result.Seconds), result.ShowValue(result.Median(theirs), result.Seconds)),
	}}, nil
}
