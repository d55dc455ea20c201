package writer

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/pailfs/pailfs/bench/bare"
)

// TestMain lets the test binary be the writing process.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "write-job" {
		if err := Serve(context.Background(), []string{os.Args[0], "write-job"}, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func process() Process { return Process{Command: []string{os.Args[0], "write-job"}} }

func TestBlocksOfOtherFilesAndPlacesDiffer(t *testing.T) {
	c := NewContent()
	p := make([]byte, 3*blockBytes+100)
	c.File("a")
	c.Fill(p, 0)
	if err := c.Check(p, 0); err != nil {
		t.Error(err)
	}
	if err := c.Check(p[blockBytes-7:2*blockBytes+9], blockBytes-7); err != nil {
		t.Errorf("a piece across blocks: %v", err)
	}
	if err := c.Check(p, periodBlocks*blockBytes); err == nil {
		t.Error("bytes were taken for those of another place")
	}
	c.File("b")
	if err := c.Check(p, 0); err == nil {
		t.Error("bytes were taken for those of another file")
	}
	c.File("a")
	p[2*blockBytes+5000] ^= 1
	if err := c.Check(p, 0); err == nil {
		t.Error("a damaged byte was not found")
	}
}

// files are such as a test writes.
func files(n int, size int64) []File {
	all := make([]File, n)
	for i := range all {
		all[i] = File{Name: fmt.Sprintf("d%d/f%d", i/4, i), Size: size + int64(i)}
	}
	return all
}

// checkDir compares every byte below root.
func checkDir(t *testing.T, root string, all []File) {
	t.Helper()
	c := NewContent()
	for _, f := range all {
		p, err := os.ReadFile(filepath.Join(root, f.Name))
		if err != nil {
			t.Fatal(err)
		}
		c.File(f.Name)
		if err := c.Check(p, 0); err != nil || int64(len(p)) != f.Size {
			t.Errorf("%s has %d bytes, want %d: %v", f.Name, len(p), f.Size, err)
		}
	}
}

func TestSeveralProcessesShareTheFiles(t *testing.T) {
	root, all := t.TempDir(), files(10, 4096)
	out, cpu, err := process().Run(t.Context(), Job{Root: root, Pattern: Small, Files: all, Writers: 3})
	if err != nil {
		t.Fatal(err)
	}
	if out.Ops != 10 || out.Seconds <= 0 || out.Began == 0 || out.PeakBytes == 0 || cpu.All() <= 0 {
		t.Errorf("outcome %+v, cpu %v", out, cpu)
	}
	checkDir(t, root, all)
}

func TestStreamsAreReadAndMappedAgain(t *testing.T) {
	root, all := t.TempDir(), []File{{"one", 2*blockBytes + 70_000}, {"two", blockBytes}}
	for _, pattern := range []Pattern{Stream, Read, Map} {
		out, _, err := process().Run(t.Context(), Job{Root: root, Pattern: pattern, Files: all, Writers: 1})
		if err != nil || out.Bytes != 3*blockBytes+70_000 {
			t.Fatalf("%s: %+v, %v", pattern, out, err)
		}
	}
	checkDir(t, root, all)
	p, err := os.ReadFile(filepath.Join(root, "one"))
	if err != nil {
		t.Fatal(err)
	}
	p[blockBytes] ^= 1
	if err := os.WriteFile(filepath.Join(root, "one"), p, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []Pattern{Read, Map} {
		if _, _, err := process().Run(t.Context(), Job{Root: root, Pattern: pattern, Files: all, Writers: 1}); err == nil {
			t.Errorf("%s took a block with a wrong stamp", pattern)
		}
	}
}

func TestAppendingGoesOnWhereTheFileEnds(t *testing.T) {
	root, log := t.TempDir(), File{"log", 100_000}
	if _, _, err := process().Run(t.Context(), Job{Root: root, Pattern: Stream, Files: []File{log}, Writers: 1}); err != nil {
		t.Fatal(err)
	}
	marks := filepath.Join(root, "marks")
	out, _, err := process().Run(t.Context(), Job{
		Root: root, Pattern: Append, Files: []File{log}, Writers: 1, AppendBytes: 700_000, Rounds: 3,
		Between: []string{"sh", "-c", "echo >> " + marks},
	})
	if err != nil || len(out.Latencies) != 3 {
		t.Fatalf("%+v, %v", out, err)
	}
	checkDir(t, root, []File{{"log", 2_200_000}})
	if text, err := os.ReadFile(marks); err != nil || len(text) != 3 {
		t.Errorf("between the rounds: %q, %v", text, err)
	}
}

func TestJobsThatMeasureNothingAreRefused(t *testing.T) {
	some := files(1, 4096)
	for name, job := range map[string]Job{
		"no place":        {Pattern: Small, Files: some, Writers: 1},
		"no files":        {Root: "/tmp", Pattern: Small, Writers: 1},
		"no writers":      {Root: "/tmp", Pattern: Small, Files: some},
		"no rounds":       {Root: "/tmp", Pattern: Append, Files: some, Writers: 1, AppendBytes: 1},
		"too small":       {Root: "/tmp", Pattern: Small, Files: files(1, 3), Writers: 1},
		"part of nothing": {Bucket: &bare.Config{}, Pattern: Stream, Files: some, Writers: 1, PartBytes: 1000},
	} {
		if job.validate() == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// bucket serves ranged GETs of the objects in a map.
func bucket(t *testing.T, objects map[string][]byte) *bare.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := objects[strings.TrimPrefix(r.URL.Path, "/b/")]
		from, to, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-")
		first, _ := strconv.Atoi(from)
		last, _ := strconv.Atoi(to)
		if last >= len(p) {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(last+1-first))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(p[first : last+1])
	}))
	t.Cleanup(server.Close)
	client, err := bare.Open(bare.Config{Endpoint: server.URL, Bucket: "b"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func TestVerifyFindsOneWrongByte(t *testing.T) {
	f := File{"x", 2*blockBytes + 10}
	c := NewContent()
	c.File(f.Name)
	p := make([]byte, f.Size)
	c.Fill(p, 0)
	client := bucket(t, map[string][]byte{"p/x": p})
	if err := Verify(t.Context(), client, "p/", []File{f}); err != nil {
		t.Fatal(err)
	}
	p[blockBytes+500] ^= 1
	if err := Verify(t.Context(), client, "p/", []File{f}); err == nil {
		t.Error("a wrong byte was taken")
	}
	if err := Verify(t.Context(), client, "p/", []File{{"x", f.Size + 5}}); err == nil {
		t.Error("an object that ends too early was taken")
	}
}
