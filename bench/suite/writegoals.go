package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pailfs/pailfs/bench/machine"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
	"github.com/pailfs/pailfs/bench/workload"
	"github.com/pailfs/pailfs/bench/writer"
)

// writeGoals are what writing must reach.
func writeGoals() []Goal {
	return []Goal{
		{Name: "write", Work: "write a checkpoint, sync and close it; until it is in the bucket; read it again", Take: takeWrite},
		{Name: "write-8", Work: "the same by eight writers", Take: takeWriteEight},
		{Name: "write-stall", Work: "torch.save again and again", Take: takeStall},
		{Name: "write-append", Work: "append to a log", Take: takeAppend},
		{Name: "write-small", Work: "many small files by four processes; until they are in the bucket", Take: takeWriteSmall},
		{Name: "write-memory", Work: "daemon's memory while much waits for its upload", Take: takeDirty},
	}
}

// find returns the series of one client at one workload.
func find(series []result.Series, workload, client string) *result.Series {
	for i := range series {
		if series[i].Workload == workload && series[i].Client == client {
			return &series[i]
		}
	}
	return &result.Series{}
}

func gib(bytes int64) string { return result.ShowValue(float64(bytes), result.ResidentBytes) }

// takeWrite measures one writer, disk, pailfs and bare client in turn.
func takeWrite(ctx context.Context, r *Runner) (Taken, error) {
	w, err := Find(r.cfg.Sizes, "write/ckpt")
	if err != nil {
		return Taken{}, err
	}
	bare, err := r.bestUpload(ctx, w)
	if err != nil {
		return Taken{}, err
	}
	unpaced := Subject{Driver: rig.Pailfs{Variant: "unpaced"}.With("--upload-pace", "none")}
	series, err := r.Measure(ctx, w, Options{Link: w.Link()}, Subject{Driver: rig.Disk{}}, Subject{Driver: rig.Pailfs{}}, unpaced, bare)
	if err != nil {
		return Taken{}, err
	}
	size := gib(r.cfg.Sizes.CheckpointBytes)
	write := result.Target{Name: "write-1", Work: "write " + size + ", fsync, close, one writer", Against: "the disk itself", Want: 0.9}
	write.Compare(find(series, w.Name, "pailfs"), find(series, w.Name, "disk"))
	arrive := result.Target{
		Name: "write-in-oss", Work: "from the open until " + size + " are in the bucket, link 600 MB/s, with flush, uploads unpaced", Want: 0.8,
		Against: "the slower of the disk and " + bare.label(),
	}
	arrive.Compare(find(series, w.Name+workload.InStore, unpaced.label()), slower(find(series, w.Name, "disk"), find(series, w.Name+workload.InStore, bare.label())))
	restore := result.Target{Name: "restore", Work: "read " + size + " that were just written", Against: "the disk itself", Want: 0.95}
	restore.Compare(find(series, "restore", "pailfs"), find(series, "restore", "disk"))
	return Taken{Targets: []result.Target{write, arrive, restore}, Series: series}, nil
}

// slower is what the slower of both did in each run.
func slower(a, b *result.Series) *result.Series {
	s := *a
	s.Samples = nil
	for i := range min(len(a.Samples), len(b.Samples)) {
		x := a.Samples[i]
		if b.Samples[i].Value < x.Value {
			x = b.Samples[i]
		}
		s.Samples = append(s.Samples, x)
	}
	s.Value = result.Median(s.Values())
	return &s
}

// bestUpload finds the number and the size of parallel parts with which a bare client
// uploads fastest, each way tried once.
func (r *Runner) bestUpload(ctx context.Context, w workload.Workload) (Subject, error) {
	var best Subject
	fastest := 0.0
	for _, way := range []struct{ writers, part int }{{16, 16 << 20}, {32, 16 << 20}, {32, 8 << 20}} {
		s := Subject{
			Driver: rig.Bare{}, Label: fmt.Sprintf("bare, %d × %d MiB", way.writers, way.part>>20),
			AdjustWrite: func(job *writer.Job) { job.Writers, job.PartBytes = way.writers, way.part },
		}
		series, err := r.Measure(ctx, w, Options{Link: w.Link(), Runs: 1}, s)
		if err != nil {
			return Subject{}, fmt.Errorf("search the best bare client: %w", err)
		}
		if v := find(series, w.Name+workload.InStore, s.Label).Value; v > fastest {
			best, fastest = s, v
		}
	}
	return best, nil
}

func takeWriteEight(ctx context.Context, r *Runner) (Taken, error) {
	w, err := Find(r.cfg.Sizes, "write/ckpt-8")
	if err != nil {
		return Taken{}, err
	}
	series, err := r.Measure(ctx, w, Options{Link: w.Link()}, Subject{Driver: rig.Disk{}}, Subject{Driver: rig.Pailfs{}})
	if err != nil {
		return Taken{}, err
	}
	t := result.Target{
		Name: "write-8", Work: "write " + gib(r.cfg.Sizes.CheckpointBytes) + " in all, fsync, close, eight writers",
		Against: "the disk itself", Want: 0.9,
	}
	t.Compare(find(series, w.Name, "pailfs"), find(series, w.Name, "disk"))
	return Taken{Targets: []result.Target{t}, Series: series}, nil
}

// takeStall compares the mean stall. The rounds of a run are its samples: the sides
// take turns once, for what pailfs uploads would else slow the disk's own side down.
func takeStall(ctx context.Context, r *Runner) (Taken, error) {
	w, err := Find(r.cfg.Sizes, "write/ckpt-stall")
	if err != nil {
		return Taken{}, err
	}
	series, err := r.Measure(ctx, w, Options{Link: w.Link(), Runs: 1}, Subject{Driver: rig.Disk{}}, Subject{Driver: rig.Pailfs{}})
	if err != nil {
		return Taken{}, err
	}
	s := w.Task.Save
	t := result.Target{
		Name: "write-stall", Work: fmt.Sprintf("mean stall by torch.save of %s every %v s, %d rounds", gib(s.Bytes), s.Every, s.Rounds),
		Against: "torch.save to the disk itself", Want: 1.1, AtMost: true,
	}
	t.Compare(find(series, w.Name, "pailfs"), find(series, w.Name, "disk"))
	return Taken{Targets: []result.Target{t}, Series: series}, nil
}

func takeAppend(ctx context.Context, r *Runner) (Taken, error) {
	w, err := Find(r.cfg.Sizes, "write/append")
	if err != nil {
		return Taken{}, err
	}
	series, err := r.Measure(ctx, w, Options{Link: w.Link()}, Subject{Driver: rig.Pailfs{}})
	if err != nil {
		return Taken{}, err
	}
	ours, disk := find(series, w.Name, "pailfs"), find(series, w.Name, besideDisk)
	var ms []float64
	for _, v := range ours.Values() {
		ms = append(ms, 1000*v)
	}
	t := result.Target{
		Name: "write-append", Work: fmt.Sprintf("append %s to a log of the bucket: open, write, close; median", gib(int64(r.cfg.Sizes.AppendBytes))),
		Against: "the clock", Want: 10, AtMost: true, Unit: "ms",
	}
	// Where the machine makes the disk itself slow, the clock says nothing of pailfs.
	beside := result.Target{
		Name: "write-append-disk", Work: t.Work, Against: "the same to a file of the disk in the same rounds", Want: 2, AtMost: true,
	}
	beside.Compare(ours, disk)
	return Taken{Targets: []result.Target{figure(t, ms, ours.Show(), besideDisk+": "+disk.Show()), beside}, Series: series}, nil
}

func takeWriteSmall(ctx context.Context, r *Runner) (Taken, error) {
	w, err := Find(r.cfg.Sizes, "write/small")
	if err != nil {
		return Taken{}, err
	}
	bare := Subject{
		Driver: rig.Bare{}, Label: fmt.Sprintf("bare, %d PUTs at once", bareTiny),
		AdjustWrite: func(job *writer.Job) { job.Writers = bareTiny },
	}
	nothing, staging := rig.Sink{Program: r.cfg.Self}, rig.Sink{Program: r.cfg.Self, Stages: true}
	series, err := r.Measure(ctx, w, Options{Link: w.Link()},
		Subject{Driver: rig.Disk{}}, Subject{Driver: rig.Pailfs{}}, Subject{Driver: nothing}, Subject{Driver: staging}, bare)
	if err != nil {
		return Taken{}, err
	}
	work := fmt.Sprintf("%d files of %d bytes by 4 processes", r.cfg.Sizes.TinyFiles, r.cfg.Sizes.TinyBytes)
	create := result.Target{Name: "write-small", Work: work, Against: "the disk itself", Want: 0.12}
	disk := find(series, w.Name, "disk")
	create.Compare(find(series, w.Name, "pailfs"), disk)
	for _, floor := range []rig.Sink{nothing, staging} {
		create.Notes = append(create.Notes, fmt.Sprintf("%s: %.3f of the disk", floor.Name(), find(series, w.Name, floor.Name()).Value/disk.Value))
	}
	arrive := result.Target{Name: "write-small-in-oss", Work: work + ", until all are in the bucket, with flush", Against: bare.label(), Want: 0.5}
	arrive.Compare(find(series, w.Name+workload.InStore, "pailfs"), find(series, w.Name+workload.InStore, bare.label()))
	return Taken{Targets: []result.Target{create, arrive}, Series: series}, nil
}

// bareTiny is how many small objects a bare client sends at once.
const bareTiny = 64

const (
	// dirtyFile is the size of a file that waits, and dirtyData how much at its
	// beginning is no hole.
	dirtyFile = 1 << 30
	dirtyData = 8 << 20
	// dirtyTiny are small files beside them.
	dirtyTiny = 10_000
	// dirtyTime is how long the memory is watched, and dirtyLink the link: slow enough
	// for next to nothing to be uploaded meanwhile, and fast enough for parts to be read
	// and sent all the time.
	dirtyTime = 40 * time.Second
	dirtyLink = "20MB"
)

// takeDirty lets files of DirtyBytes in all wait for their upload, most of each a
// hole, and small ones beside them, and finds the largest size of the daemon.
func takeDirty(ctx context.Context, r *Runner) (taken Taken, err error) {
	if err := r.serve(ctx, rig.Link{Profile: "seed", Upload: dirtyLink, Memory: true}); err != nil {
		return Taken{}, err
	}
	place, err := r.place("dirty")
	if err != nil {
		return Taken{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(place.Work)) }()
	session, err := (rig.Pailfs{}).Start(ctx, place)
	if err != nil {
		return Taken{}, err
	}
	s := session.(*rig.PailfsSession)
	defer func() { err = errors.Join(err, s.Abandon(context.WithoutCancel(ctx))) }()
	files, tiny := int(r.cfg.Sizes.DirtyBytes/dirtyFile), min(dirtyTiny, r.cfg.Sizes.TinyFiles)
	if err := writeDirty(s.Mount, files, tiny); err != nil {
		return Taken{}, err
	}
	wait := dirtyTime
	if r.cfg.Sizes.DirtyBytes < workload.Full().DirtyBytes {
		wait = dirtyTime / 20
	}
	select {
	case <-ctx.Done():
		return Taken{}, ctx.Err()
	case <-time.After(wait):
	}
	text, err := s.Status(ctx)
	if err != nil {
		return Taken{}, err
	}
	var status struct {
		Writing struct {
			DirtyBytes int64 `json:"dirty_bytes"`
		} `json:"writing"`
	}
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return Taken{}, fmt.Errorf("read status: %w", err)
	}
	if dirty := status.Writing.DirtyBytes; dirty < r.cfg.Sizes.DirtyBytes*9/10 {
		return Taken{}, fmt.Errorf("only %s wait for their upload: %s", gib(dirty), text)
	}
	memory, err := machine.MemoryOf(s.Daemons()[0])
	if err != nil {
		return Taken{}, err
	}
	t := result.Target{
		Name:    "write-memory",
		Work:    fmt.Sprintf("daemon's resident memory, %s in %d files (mostly holes) and %d small ones waiting, link up %s/s", gib(r.cfg.Sizes.DirtyBytes), files, tiny, dirtyLink),
		Against: "the kernel's count", Want: 250e6, AtMost: true, Unit: "B",
	}
	return Taken{Targets: []result.Target{figure(t, []float64{float64(memory.PeakBytes)}, gib(memory.PeakBytes), "–")}}, nil
}

func writeDirty(root string, files, tiny int) error {
	c := writer.NewContent()
	for i := range files {
		name := fmt.Sprintf("dirty-%d.bin", i)
		c.File(name)
		p := make([]byte, dirtyData)
		c.Fill(p, 0)
		path := filepath.Join(root, name)
		if err := os.WriteFile(path, p, 0o644); err != nil {
			return err
		}
		if err := os.Truncate(path, dirtyFile); err != nil {
			return err
		}
	}
	for i := range tiny {
		name := fmt.Sprintf("small/%05d", i)
		if i == 0 {
			if err := os.Mkdir(filepath.Join(root, "small"), 0o755); err != nil {
				return err
			}
		}
		c.File(name)
		if err := os.WriteFile(filepath.Join(root, name), c.Block(0, 4096), 0o644); err != nil {
			return err
		}
	}
	return nil
}
