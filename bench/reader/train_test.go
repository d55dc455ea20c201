package reader

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pailfs/pailfs/bench/dataset"
)

// trainJob is a job that trains on m from the disk.
func trainJob(t *testing.T, m *dataset.Manifest, readers int, training Training) Job {
	t.Helper()
	job := onDisk(t, m)
	job.Pattern, job.Check, job.BlockBytes, job.Readers, job.List = Train, Bytes, 1<<20, readers, true
	job.Order, job.Training = 7, &training
	return job
}

func TestTrainReadsEveryFileOnceAndComputes(t *testing.T) {
	m := dataset.Small("small", 1, 100, 10_000, 10)
	job := trainJob(t, m, 3, Training{Batch: 10, Compute: 0.001, Directory: true})
	out, _, err := process().Run(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if out.Ops != 100 || out.Bytes != m.Bytes() || len(out.Latencies) != 9 || out.Seconds <= 0.009 {
		t.Errorf("outcome is %+v", out)
	}
	if out.Utilisation <= 0 || out.Utilisation > 1 {
		t.Errorf("utilisation is %v", out.Utilisation)
	}
	job.Count = 95
	if out, _, err = process().Run(t.Context(), job); err != nil || out.Ops != 90 {
		t.Errorf("without the last, incomplete, batch: %+v, %v", out, err)
	}
}

func TestTrainReadsRecordsOfLargeFilesSideBySide(t *testing.T) {
	const records, size = 24, 100_000
	m := dataset.Big("shards", 1, 4, records*size)
	job := trainJob(t, m, 2, Training{Batch: 8, Compute: 0.001, Records: records, RecordBytes: size})
	out, _, err := process().Run(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if out.Ops != 4 || out.Bytes != m.Bytes() || len(out.Latencies) != 4*records/8-1 {
		t.Errorf("outcome is %+v", out)
	}
}

func TestTrainNoticesWrongBytes(t *testing.T) {
	m := dataset.Small("small", 1, 20, 10_000, 10)
	job := trainJob(t, m, 2, Training{Batch: 5})
	path := filepath.Join(job.Root, m.Files[13].Name)
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p[5_000] ^= 1
	if err := os.WriteFile(path, p, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := process().Run(t.Context(), job); err == nil || !strings.Contains(err.Error(), m.Files[13].Name) {
		t.Errorf("one wrong bit: %v", err)
	}
}

func TestTrainRefusesWhatItCannotDo(t *testing.T) {
	good := trainJob(t, dataset.Small("small", 1, 20, 100, 10), 2, Training{Batch: 5})
	for name, change := range map[string]func(j *Job, t *Training){
		"no batch":                func(_ *Job, t *Training) { t.Batch = 0 },
		"one batch":               func(_ *Job, t *Training) { t.Batch = 20 },
		"hints without lookahead": func(_ *Job, t *Training) { t.Hints = true },
		"hints without a mount":   func(_ *Job, t *Training) { t.Hints, t.Lookahead = true, 10 },
		"a share that is no whole": func(j *Job, t *Training) {
			t.Records, t.RecordBytes = 1, 100
		},
		"only stamps": func(j *Job, _ *Training) { j.Check = Stamps },
	} {
		job, training := good, *good.Training
		job.Training = &training
		change(&job, &training)
		if _, _, err := process().Run(t.Context(), job); err == nil {
			t.Errorf("%s: it was done", name)
		}
	}
	if _, _, err := process().Run(t.Context(), good); err != nil {
		t.Error(err)
	}
}

func TestEchoReturnsWhatItIsSent(t *testing.T) {
	e, err := startEcho()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if took, err := e.take(); err != nil || took <= 0 {
			t.Errorf("it took %v: %v", took, err)
		}
	}
	if err := e.end(); err != nil {
		t.Error(err)
	}
}
