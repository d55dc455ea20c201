package reader

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc64"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pailfs/pailfs/bench/dataset"
)

// TestMain lets the test binary be the reading process.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "read-job" {
		if err := Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func process() Process { return Process{Command: []string{os.Args[0], "read-job"}} }

// onDisk writes the set m to a directory and returns a job that reads it.
func onDisk(t *testing.T, m *dataset.Manifest) Job {
	t.Helper()
	dir := t.TempDir()
	if err := m.AddSums(); err != nil {
		t.Fatal(err)
	}
	for i := range m.Files {
		f := &m.Files[i]
		content, _ := m.Content(f)
		p := make([]byte, f.Size)
		content.Fill(p, 0)
		path := filepath.Join(dir, "data", f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, p, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	job := Job{Manifest: filepath.Join(dir, "manifest.json"), Root: filepath.Join(dir, "data"), Readers: 1, Check: Stamps}
	if err := m.Save(job.Manifest); err != nil {
		t.Fatal(err)
	}
	return job
}

func TestSequentialReadsEveryByte(t *testing.T) {
	m := dataset.Big("big", 1, 2, 5<<20+77)
	job := onDisk(t, m)
	job.Pattern, job.BlockBytes = Sequential, 1<<20
	for _, check := range []Check{Stamps, Bytes} {
		job.Check = check
		out, used, err := process().Run(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		if out.Bytes != m.Bytes() || out.Ops != 12 || out.Seconds <= 0 {
			t.Errorf("outcome is %+v", out)
		}
		if used.All() <= 0 || out.PeakBytes < 1<<20 {
			t.Errorf("%v of processor time, peak %d", used, out.PeakBytes)
		}
	}
}

func TestSmallReadsEveryFileOnce(t *testing.T) {
	m := dataset.Small("small", 1, 103, 10_000, 10)
	job := onDisk(t, m)
	job.Pattern, job.Readers, job.List = Small, 4, true
	out, _, err := process().Run(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if out.Ops != 103 || out.Bytes != m.Bytes() {
		t.Errorf("outcome is %+v", out)
	}
	job.First, job.Count = 100, 3
	if out, _, err = process().Run(t.Context(), job); err != nil || out.Ops != 3 {
		t.Errorf("the last three files: %+v, %v", out, err)
	}
	job.Count = 4
	if _, _, err = process().Run(t.Context(), job); err == nil {
		t.Error("a piece beyond the end was accepted")
	}
}

func TestRandomReadsDistinctSlots(t *testing.T) {
	m := dataset.Big("big", 1, 2, 8<<20)
	job := onDisk(t, m)
	job.Pattern, job.Check = Random, Bytes
	if out, _, err := process().Run(t.Context(), job); err != nil || out.Ops != 16 || len(out.Latencies) != 0 {
		t.Errorf("outcome is %+v, %v", out, err)
	}
	pages, err := job.pages(m)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[page]bool{}
	for _, p := range pages {
		if p.offset%dataset.PageSize != 0 {
			t.Errorf("offset %d is no page", p.offset)
		}
		slot := page{p.file, p.offset / slotBytes}
		if seen[slot] {
			t.Errorf("slot %+v is read twice", slot)
		}
		seen[slot] = true
	}
}

func TestReadsThatAreTimedAreOfDistinctFiles(t *testing.T) {
	m := dataset.Big("big", 1, 16, 2<<20)
	job := onDisk(t, m)
	job.Pattern, job.EachLatency, job.Check = Random, true, Bytes
	if out, _, err := process().Run(t.Context(), job); err != nil || out.Ops != 16 || len(out.Latencies) != 16 {
		t.Errorf("outcome is %+v, %v", out, err)
	}
	pages, err := job.pages(m)
	if err != nil {
		t.Fatal(err)
	}
	seen, second := map[int]bool{}, false
	for _, p := range pages {
		if seen[p.file] || p.offset%dataset.PageSize != 0 {
			t.Errorf("page %+v: its file is read twice, or its offset is no page", p)
		}
		seen[p.file] = true
		second = second || p.offset >= slotBytes
	}
	if !second {
		t.Error("no page is of a second half")
	}
	job.First, job.Count = 10, 7
	if _, err := job.pages(m); err == nil {
		t.Error("more cold reads than files were accepted")
	}
	// Pieces continue where the one before ended.
	job.First, job.Count = 5, 4
	piece, err := job.pages(m)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range piece {
		if p != pages[5+i] {
			t.Errorf("page %d of the piece is %+v, want %+v", i, p, pages[5+i])
		}
	}
}

func TestDamageIsNoticed(t *testing.T) {
	damage := map[string]func(t *testing.T, path string){
		"a changed stamp": func(t *testing.T, path string) { overwrite(t, path, 4096) },
		"a missing end": func(t *testing.T, path string) {
			if err := os.Truncate(path, 9000); err != nil {
				t.Fatal(err)
			}
		},
		"a byte too many": func(t *testing.T, path string) {
			if err := os.Truncate(path, 10_001); err != nil {
				t.Fatal(err)
			}
		},
		"a missing file": func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, do := range damage {
		t.Run(name, func(t *testing.T) {
			m := dataset.Small("small", 1, 10, 10_000, 10)
			job := onDisk(t, m)
			do(t, filepath.Join(job.Root, m.Files[7].Name))
			for _, pattern := range []Pattern{Small, Sequential} {
				job.Pattern, job.BlockBytes = pattern, 1<<20
				_, _, err := process().Run(t.Context(), job)
				if err == nil || !strings.Contains(err.Error(), "0000007.bin") {
					t.Errorf("%s: error %v", pattern, err)
				}
			}
		})
	}
	t.Run("a changed byte between stamps", func(t *testing.T) {
		m := dataset.Small("small", 1, 10, 10_000, 10)
		job := onDisk(t, m)
		job.Pattern, job.Check = Small, Bytes
		overwrite(t, filepath.Join(job.Root, m.Files[7].Name), 4096+1000)
		if _, _, err := process().Run(t.Context(), job); err == nil {
			t.Error("no error")
		}
	})
}

func overwrite(t *testing.T, path string, offset int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 1)
	if _, err := f.ReadAt(p, offset); err != nil {
		t.Fatal(err)
	}
	p[0] ^= 1
	if _, err := f.WriteAt(p, offset); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSenselessJobsAreRefused(t *testing.T) {
	for _, job := range []Job{
		{},
		{Manifest: "m", Readers: 1, Pattern: Small, Check: Stamps},
		{Manifest: "m", Root: "/", Pattern: Small, Check: Stamps},
		{Manifest: "m", Root: "/", Readers: 1, Pattern: "backwards", Check: Stamps},
		{Manifest: "m", Root: "/", Readers: 1, Pattern: Small, Check: "never"},
		{Manifest: "m", Root: "/", Readers: 1, Pattern: Small, Check: CRC64},
		{Manifest: "m", Root: "/", Readers: 1, Pattern: Sequential, BlockBytes: 1000, Check: Bytes},
	} {
		if err := job.validate(); err == nil {
			t.Errorf("job %+v was accepted", job)
		}
	}
	var out bytes.Buffer
	if err := Serve(t.Context(), strings.NewReader("{"), &out); err == nil || out.Len() > 0 {
		t.Errorf("half a job: %v, %q", err, out.String())
	}
}

func TestCombineEqualsTheSumOfTheWhole(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	whole := make([]byte, 100_000)
	for i := range whole {
		whole[i] = byte(random.Uint32())
	}
	want := crc64.Checksum(whole, ecma)
	for range 100 {
		at := random.IntN(len(whole) + 1)
		first, second := whole[:at], whole[at:]
		got := combine(crc64.Checksum(first, ecma), crc64.Checksum(second, ecma), int64(len(second)))
		if got != want {
			t.Fatalf("cut at %d: %016x, want %016x", at, got, want)
		}
	}
}
