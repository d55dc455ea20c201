package suite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/bench/child"
	"github.com/pailfs/pailfs/bench/names"
	"github.com/pailfs/pailfs/bench/reader"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
	"github.com/pailfs/pailfs/bench/workload"
	"github.com/pailfs/pailfs/bench/workload/growth"
	"github.com/pailfs/pailfs/bench/workload/read"
	"github.com/pailfs/pailfs/bench/workload/train"
	"github.com/pailfs/pailfs/bench/writer"
)

// TestMain lets the test binary be the reading process.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "read-job" {
		if err := reader.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == "names-job" {
		if err := names.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == "write-job" {
		if err := writer.Serve(context.Background(), []string{os.Args[0], "write-job"}, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// tiny are sizes for tests.
func tiny() workload.Sizes {
	return workload.Sizes{
		BigBytes: 4 << 20, WideBytes: 2 << 20, SmallFiles: 60, SmallBytes: 10_000, ColdFiles: 20,
		WarmReads: 50, SSDReads: 10, ColdReads: 4, StreamBytes: 8 << 20,
		CheckpointBytes: 4 << 20, ModelBytes: 2 << 20, SaveBytes: 1 << 20, SaveRounds: 4, SaveEvery: time.Millisecond,
		LogBytes: 1 << 20, AppendBytes: 100_000, AppendRounds: 3, TinyFiles: 250, TinyBytes: 4096, DirtyBytes: 1 << 30,
		ListNames: 50, WideNames: 200, TreeDirs: 3, TreeNames: 10,
		Training: workload.TrainingSizes{
			Images: 48, LeastCache: 160 << 20, Inside: 48, Volumes: 14, VolumeBytes: 500_000, Shards: 8, ShardBytes: 100 * train.RecordBytes,
			Cubes: 8, Held: 10,
		},
	}
}

func runner(t *testing.T, runs int) *Runner {
	t.Helper()
	r, err := Open(Config{
		Work: t.TempDir(), Sizes: tiny(), Runs: runs, Reader: reader.Process{Command: []string{os.Args[0], "read-job"}},
		Writer: writer.Process{Command: []string{os.Args[0], "write-job"}}, Self: os.Args[0],
		Say: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestNamesAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range Workloads(workload.Full()) {
		if seen[w.Name] || w.Help == "" {
			t.Errorf("workload %+v", w)
		}
		seen[w.Name] = true
	}
	for _, g := range Goals() {
		if seen[g.Name] || g.Work == "" {
			t.Errorf("goal %q", g.Name)
		}
		seen[g.Name] = true
	}
	if _, err := Find(workload.Full(), "read/backwards"); err == nil {
		t.Error("an unknown workload was found")
	}
}

func TestColdRunsContinueWhereTheOneBeforeEnded(t *testing.T) {
	small, err := Find(tiny(), "read/small-cold")
	if err != nil {
		t.Fatal(err)
	}
	for run, want := range []int{0, 20, 40, 0} {
		if job := small.JobOf(run, 0); job.First != want || job.Count != 20 || job.Readers != 8 {
			t.Errorf("run %d is %+v", run, job)
		}
	}
	if job := small.JobOf(2, 3); job.Readers != 3 {
		t.Errorf("with 3 readers it is %+v", job)
	}
}

func TestTheCacheOfImagesIsOneThatPailfsTakes(t *testing.T) {
	for name, s := range map[string]workload.Sizes{"full": workload.Full(), "quick": workload.Quick(), "short": workload.Short()} {
		if got := train.ImageCache(s); got < 128<<20 { // half of it on disk, of which it wants 64 MiB
			t.Errorf("%s: %d bytes", name, got)
		}
	}
}

func TestSlowClientsGiveFewerSamples(t *testing.T) {
	r := runner(t, 3)
	for _, name := range []string{"read/seq-ssd", "write/ckpt", "list/10k"} {
		w, err := Find(tiny(), name)
		if err != nil {
			t.Fatal(err)
		}
		series, err := r.Measure(t.Context(), w, Options{Patience: 1}, Subject{Driver: rig.Disk{}})
		if err != nil || len(series[0].Samples) != 1 || series[0].Value == 0 {
			t.Errorf("%s: %+v, %v; want one sample", name, series, err)
		}
	}
}

// The names that results are compared by.
func TestNamesOfWorkloadsStay(t *testing.T) {
	names := map[string]bool{}
	for _, w := range Workloads(tiny()) {
		names[w.Name] = true
	}
	for _, s := range Studies() {
		if names[s.Name] {
			t.Errorf("%s is a workload and a study", s.Name)
		}
		names[s.Name] = true
	}
	for _, name := range []string{
		"read/seq-cold", "read/seq-warm", "read/rand4k-cold", "read/rand4k-warm", "read/small-cold", "read/small-warm", "read/mmap-model",
		"list/10k", "list/1m", "stat/tree", "write/ckpt", "write/ckpt-stall", "write/append", "write/small", "restore",
		"train/retinanet", "train/unet3d", "train/resnet50", "train/cosmoflow", "train/workers", "seeds/table",
	} {
		if !names[name] {
			t.Errorf("there is no workload %s", name)
		}
	}
}

func TestWhatGrowsIsNamedByItsStep(t *testing.T) {
	s := tiny()
	s.Growth = workload.Short().Growth
	for _, g := range growth.Axes(s) {
		for step := range g.Steps {
			w, readers := g.Workload(step)
			m := growth.Files(s, w.Set)
			if m == nil || len(m.Files) < max(1, w.Job.Count) || readers < 1 {
				t.Errorf("%s, step %d: %+v of %+v", g.Name, step, w, m)
			}
			if g.Name == "depth" && strings.Count(m.Files[0].Name, "/") != s.Growth.Levels[step] {
				t.Errorf("%q is not below %d directories", m.Files[0].Name, s.Growth.Levels[step])
			}
		}
	}
}

func TestEveryWorkloadRunsOnThePlainDisk(t *testing.T) {
	r := runner(t, 2)
	for _, w := range Workloads(tiny()) {
		series, err := r.Measure(t.Context(), w, Options{Readers: 2}, Subject{Driver: rig.Disk{}}, Subject{Driver: rig.Disk{}, Label: "again"})
		if err != nil {
			t.Fatal(err)
		}
		if w.Task != nil || w.List != nil {
			checkWritten(t, w, series)
			continue
		}
		if len(series) != 2 || series[0].Client != "disk" || series[1].Client != "again" || series[0].How != "2 readers" {
			t.Errorf("%s: %+v", w.Name, series)
		}
		for _, s := range series {
			if len(s.Samples) != 2 || s.Value <= 0 || s.Samples[0].Bytes == 0 {
				t.Errorf("%s: %+v", w.Name, s)
			}
			timed := w.Metric == result.Seconds || w.Metric == result.Utilisation
			if timed != (s.Samples[0].Quantiles != nil) {
				t.Errorf("%s: quantiles are %+v", w.Name, s.Samples[0].Quantiles)
			}
		}
	}
	left, err := os.ReadDir(filepath.Join(r.cfg.Work, "clients"))
	if err != nil || len(left) != 0 {
		t.Errorf("left of the clients: %v, %v", left, err)
	}
}

// checkWritten checks that both sides of a workload that writes have what it promises.
func checkWritten(t *testing.T, w workload.Workload, series []result.Series) {
	t.Helper()
	want := 1
	if w.List != nil || w.Task.Restore && !w.Task.Only {
		want = 2
	}
	if len(series) != 2*want || series[0].Client != "disk" || series[want].Client != "again" {
		t.Fatalf("%s: %+v", w.Name, series)
	}
	for _, s := range series {
		if len(s.Samples) != 2 || s.Value <= 0 || s.Samples[0].Ops == 0 {
			t.Errorf("%s: %+v", s.Workload, s)
		}
	}
}

func TestDamageBetweenStampsStopsTheMeasurement(t *testing.T) {
	r := runner(t, 1)
	w, err := Find(tiny(), "read/seq-warm")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.stage.putOnDisk(t.Context(), read.Big); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(r.stage.diskDir(read.Big), "0.bin")
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p[100_000] ^= 1
	if err := os.WriteFile(path, p, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Measure(t.Context(), w, Options{}, Subject{Driver: rig.Disk{}}); err == nil {
		t.Error("wrong bytes were measured")
	}
}

func TestAccountSharesOutTheProcessors(t *testing.T) {
	cores := time.Duration(processors())
	at := time.Now()
	before := meter{at: at, busy: time.Hour, own: time.Minute, daemons: time.Second, servers: 2 * time.Second}
	after := meter{
		at: at.Add(2 * time.Second), busy: time.Hour + cores*time.Second, own: time.Minute,
		daemons: 1100 * time.Millisecond, servers: 2*time.Second + cores*250*time.Millisecond,
	}
	s := result.Sample{Seconds: 0.5}
	account(&s, before, after, child.CPU{User: 60 * time.Millisecond, System: 40 * time.Millisecond})
	if s.ServerShare != 0.5 {
		t.Errorf("the server's share is %v", s.ServerShare)
	}
	c := float64(cores)
	if want := (c - 0.1 - 0.1 - c*0.25) / (2 * c); s.OtherShare < want-1e-9 || s.OtherShare > want+1e-9 {
		t.Errorf("others' share is %v, want %v", s.OtherShare, want)
	}
}

func TestRunnerRefusesNoRuns(t *testing.T) {
	if _, err := Open(Config{Work: t.TempDir(), Sizes: tiny()}); err == nil {
		t.Error("no runs were accepted")
	}
}
