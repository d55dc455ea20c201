package suite

import (
	"bytes"
	"context"
	_ "embed" // for the Python program
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pailfs/pailfs/bench/dataset"
	"github.com/pailfs/pailfs/bench/machine"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
	"github.com/pailfs/pailfs/bench/workload"
	"github.com/pailfs/pailfs/bench/workload/train"
	"github.com/pailfs/pailfs/prefetch/control"
)

// withMount runs do on a mount of set, with a directory of its own.
func (r *Runner) withMount(ctx context.Context, set workload.Set, link rig.Link, driver rig.Pailfs, cacheBytes int64, do func(s *rig.PailfsSession, m *dataset.Manifest) error) (err error) {
	if err := r.provideBucket(ctx, set, link); err != nil {
		return err
	}
	m, err := r.stage.manifest(set)
	if err != nil {
		return err
	}
	place, err := r.place(set)
	if err != nil {
		return err
	}
	place.CacheBytes = cacheBytes
	defer func() { err = errors.Join(err, os.RemoveAll(place.Work)) }()
	session, err := driver.Start(ctx, place)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Stop(context.WithoutCancel(ctx))) }()
	return do(session.(*rig.PailfsSession), m)
}

// held is a session that holds files.
type held struct {
	client *control.Client
	opened control.OpenResult
}

// hold announces files on a mount and waits until they are ready.
func hold(ctx context.Context, at string, names []string) (h *held, err error) {
	h = &held{}
	if h.client, err = control.Dial(at); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.client.Close())
		}
	}()
	if err := h.client.Call(ctx, "loader.open", control.OpenParams{Task: "bench", Buffer: max(len(names), 1)}, &h.opened); err != nil {
		return nil, err
	}
	const batch = 400
	for from := 0; from < len(names); from += batch {
		paths := control.PathsParams{Session: h.opened.Session, Paths: names[from:min(from+batch, len(names))]}
		if err := h.client.Call(ctx, "loader.preload", paths, nil); err != nil {
			return nil, err
		}
	}
	for from := 0; from < len(names); from += batch {
		var answer control.WaitResult
		paths := control.PathsParams{Session: h.opened.Session, Paths: names[from:min(from+batch, len(names))], Timeout: 60_000}
		if err := h.client.Call(ctx, "loader.wait", paths, &answer); err != nil {
			return nil, err
		}
		for _, f := range answer.Files {
			if f.State != "ready" {
				return nil, fmt.Errorf("%q was announced and is %s: %s", f.Path, f.State, f.Error)
			}
		}
	}
	return h, nil
}

// end lets everything go.
func (h *held) end(ctx context.Context) error {
	return errors.Join(h.client.Call(ctx, "loader.close", control.CloseParams{Session: h.opened.Session}, nil), h.client.Close())
}

func namesOf(m *dataset.Manifest, n int) []string {
	names := make([]string, min(n, len(m.Files)))
	for i := range names {
		names[i] = m.Files[i].Name
	}
	return names
}

// takeFirstRead counts the requests that reads of announced files take.
func takeFirstRead(ctx context.Context, r *Runner) (taken Taken, err error) {
	const files = 100
	requests := 0.0
	err = r.withMount(ctx, train.Images, rig.Link{}, rig.Pailfs{}, 0, func(s *rig.PailfsSession, m *dataset.Manifest) error {
		names := namesOf(m, files)
		if _, err := os.ReadDir(filepath.Join(s.Mount, filepath.Dir(names[0]))); err != nil {
			return fmt.Errorf("list: %w", err)
		}
		h, err := hold(ctx, s.Mount, names)
		if err != nil {
			return err
		}
		if err := r.server.ResetStats(ctx); err != nil {
			return errors.Join(err, h.end(ctx))
		}
		for i, name := range names {
			p, err := os.ReadFile(filepath.Join(s.Mount, name))
			if err == nil {
				err = m.Files[i].CheckSums(p, 0)
			}
			if err != nil {
				return errors.Join(fmt.Errorf("read what was announced: %w", err), h.end(ctx))
			}
		}
		stats, err := r.server.Stats(ctx)
		requests = float64(total(stats.Requests))
		return errors.Join(err, h.end(ctx))
	})
	if err != nil {
		return Taken{}, err
	}
	return Taken{Targets: []result.Target{{
		Name: "train-first-read", Work: "requests of the first reads of files that were announced and ready", Against: "the server's counters", AtMost: true,
		Unit: "requests", Measured: requests, Least: requests, Most: requests, Subject: fmt.Sprintf("all of %d files", files), Reference: "–",
	}}}, nil
}

// takeHeld says by how much the daemon grows that holds many files.
func takeHeld(ctx context.Context, r *Runner) (Taken, error) {
	n := r.cfg.Sizes.Training.Held
	grown, before := 0.0, 0.0
	err := r.withMount(ctx, train.Tiny, rig.Link{}, rig.Pailfs{}, 1<<30, func(s *rig.PailfsSession, m *dataset.Manifest) error {
		// What a daemon needs for anything is there when it has served something.
		h, err := hold(ctx, s.Mount, namesOf(m, 1))
		if err == nil {
			err = h.end(ctx)
		}
		if err != nil {
			return err
		}
		pid := s.Daemons()[0]
		empty, err := machine.MemoryOf(pid)
		if err != nil {
			return err
		}
		if err := machine.ResetPeak(pid); err != nil {
			return err
		}
		if h, err = hold(ctx, s.Mount, namesOf(m, n)); err != nil {
			return err
		}
		full, err := machine.MemoryOf(pid)
		grown, before = float64(full.PeakBytes-empty.NowBytes), float64(empty.NowBytes)
		return errors.Join(err, h.end(ctx))
	})
	if err != nil {
		return Taken{}, err
	}
	return Taken{Targets: []result.Target{{
		Name: "train-held", Work: fmt.Sprintf("by how much the daemon grows at most that fetches and holds %d files of 4 KiB, its memory tier of 64 MiB included", n),
		Against: "the daemon before", Want: 100e6, AtMost: true, Unit: "B", Measured: grown, Least: grown, Most: grown,
		Subject: result.ShowValue(before+grown, result.ResidentBytes), Reference: result.ShowValue(before, result.ResidentBytes),
	}}}, nil
}

//go:embed training.py
var pythonTraining []byte

// pythonJob is what training.py reads, pythonOutcome what it writes.
type pythonJob struct {
	Mount   string   `json:"mount"`
	Names   []string `json:"names"`
	Batch   int      `json:"batch"`
	Workers int      `json:"workers"`
	Compute float64  `json:"compute"`
	// Calls is how many files are announced one by one.
	Calls int `json:"calls"`
}

type pythonOutcome struct {
	Utilisation float64 `json:"utilisation"`
	// Many are seconds and numbers of files of the calls that announced several; One,
	// Active and Release are seconds of calls for one. After each call of the first two
	// kinds another process returned a byte: that took ManyEcho and OneEcho.
	Many     [][2]float64 `json:"many"`
	ManyEcho []float64    `json:"many_echo"`
	One      []float64    `json:"one"`
	OneEcho  []float64    `json:"one_echo"`
	Active   []float64    `json:"active"`
	Release  []float64    `json:"release"`
	Unsent   int          `json:"unsent"`
}

// takeHints trains in Python, with PyTorch's DataLoader and forked workers, and then
// announces files one by one as programs for PAI's service do.
func takeHints(ctx context.Context, r *Runner) (Taken, error) {
	t := r.cfg.Sizes.Training
	var single, perFile, utilisation, echo, echoMany []float64
	files := 0.0
	err := r.withMount(ctx, train.Images, seedLink, rig.Pailfs{}, train.ImageCache(r.cfg.Sizes), func(s *rig.PailfsSession, m *dataset.Manifest) error {
		for range min(r.cfg.Runs, 3) {
			if err := r.settle(); err != nil {
				return err
			}
			out, err := r.python(ctx, pythonJob{Mount: s.Mount, Names: namesOf(m, t.Worker), Batch: 24, Workers: 2, Compute: 0.04755, Calls: t.Calls})
			if err != nil {
				return err
			}
			seconds := 0.0
			files = 0
			for _, call := range out.Many {
				seconds += call[0]
				files += call[1]
			}
			perFile = append(perFile, 1e6*seconds/files)
			single = append(single, 1e3*result.Quantile(out.One, 0.99))
			utilisation = append(utilisation, out.Utilisation)
			echo = append(echo, 1e3*result.Quantile(out.OneEcho, 0.99))
			echoMany = append(echoMany, 1e3*result.Median(out.ManyEcho))
			r.cfg.Say("  a call for one file: preload %.3f ms, active %.3f ms, release %.3f ms (medians); utilisation %.3f",
				1e3*result.Median(out.One), 1e3*result.Median(out.Active), 1e3*result.Median(out.Release), out.Utilisation)
		}
		return nil
	})
	if err != nil {
		return Taken{}, err
	}
	au := result.ShowValue(result.Median(utilisation), result.Utilisation)
	return Taken{Targets: []result.Target{
		figure(result.Target{Name: "train-hint-call", Work: "preload_dataset_file of the Python client in a sampler, 99th percentile, training with 2 forked workers", Against: "the clock; an echo of another process after each call", Want: 1, AtMost: true, Unit: "ms"},
			single, fmt.Sprintf("%d calls", t.Calls), fmt.Sprintf("echo %.2f ms", result.Median(echo))),
		figure(result.Target{Name: "train-hint-file", Work: "a file in preload_many of the Python client, training with 2 forked workers of PyTorch", Against: "the clock; such an echo, median", Want: 20, AtMost: true, Unit: "µs"},
			perFile, fmt.Sprintf("%.0f files, %s", files, au), fmt.Sprintf("echo %.2f ms a call", result.Median(echoMany))),
	}}, nil
}

// python runs training.py.
func (r *Runner) python(ctx context.Context, job pythonJob) (out pythonOutcome, err error) {
	in, err := json.Marshal(job)
	if err != nil {
		return out, err
	}
	program := filepath.Join(r.cfg.Work, "training.py")
	if err := os.WriteFile(program, pythonTraining, 0o644); err != nil {
		return out, err
	}
	client, err := filepath.Abs(filepath.Join(r.cfg.Programs, "..", "prefetch", "python"))
	if err != nil {
		return out, err
	}
	if _, err := os.Stat(filepath.Join(client, "dataset_file_loader")); err != nil {
		return out, fmt.Errorf("the Python client is looked for beside the programs: %w", err)
	}
	ran, err := rig.RunCommand(ctx, []string{"PYTHONPATH=" + client, "OMP_NUM_THREADS=1"}, bytes.NewReader(in), "/usr/bin/python3", "-B", program)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal([]byte(ran.Stdout), &out); err != nil {
		return out, fmt.Errorf("read what the Python program says: %w", err)
	}
	if out.Unsent > 0 {
		return out, fmt.Errorf("%d hints of the Python program did not reach the daemon", out.Unsent)
	}
	return out, nil
}
