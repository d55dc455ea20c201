package demo

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pailfs/pailfs/bench/dataset"
)

// smallFashion writes a data set of 50 + 10 images of 2×3 pixels.
func smallFashion(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, part := range []struct {
		name  string
		count int
	}{{"train", 50}, {"t10k", 10}} {
		pixels, labels := make([]byte, part.count*6), make([]byte, part.count)
		for i := range pixels {
			pixels[i] = byte(rand.Uint32())
		}
		for i := range labels {
			labels[i] = byte(i % 10)
		}
		n := uint32(part.count)
		writeIDX(t, filepath.Join(dir, part.name+"-images-idx3-ubyte.gz"), []uint32{n, 2, 3}, pixels)
		writeIDX(t, filepath.Join(dir, part.name+"-labels-idx1-ubyte.gz"), []uint32{n}, labels)
	}
	return dir
}

func writeIDX(t *testing.T, path string, dims []uint32, data []byte) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	header := []byte{0, 0, 8, byte(len(dims))}
	for _, n := range dims {
		header = binary.BigEndian.AppendUint32(header, n)
	}
	if _, err := z.Write(append(header, data...)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestPackedFileHoldsEveryImageOnceAnEpoch(t *testing.T) {
	const images, pixels = 60, 6
	d, err := loadData(smallFashion(t), mostImages, 3*images*pixels)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.files) != images || d.pixelSize != pixels {
		t.Fatalf("%d images of %d bytes", len(d.files), d.pixelSize)
	}
	whole := make([]byte, d.packed.Files[0].Size)
	d.fillPacked(whole, 0)
	if err := d.packed.Files[0].CheckSums(whole, 0); err != nil {
		t.Error(err)
	}
	want := map[string]int{}
	for _, f := range d.files {
		want[string(f[len(f)-pixels:])]++
	}
	var epochs []string
	for epoch := range 3 {
		piece := whole[epoch*images*pixels : (epoch+1)*images*pixels]
		got := map[string]int{}
		for i := 0; i < len(piece); i += pixels {
			got[string(piece[i:i+pixels])]++
		}
		for image, n := range want {
			if got[image] != n {
				t.Fatalf("epoch %d holds an image %d times, want %d", epoch, got[image], n)
			}
		}
		epochs = append(epochs, string(piece))
	}
	if epochs[0] == epochs[1] || epochs[1] == epochs[2] {
		t.Error("two epochs have the same order")
	}
	for range 100 {
		from := rand.IntN(len(whole))
		to := from + rand.IntN(len(whole)-from) + 1
		part := make([]byte, to-from)
		d.fillPacked(part, int64(from))
		if !bytes.Equal(part, whole[from:to]) {
			t.Fatalf("bytes %d to %d differ when made alone", from, to)
		}
	}
}

func TestObjectsAreWhatTheManifestsSay(t *testing.T) {
	d, err := loadData(smallFashion(t), 55, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]*dataset.File{packedName: &d.packed.Files[0]}
	for i := range d.images.Files {
		files[d.images.Files[i].Name] = &d.images.Files[i]
	}
	objects := d.objects()
	if len(objects) != 56 || len(files) != 56 {
		t.Fatalf("%d objects, %d files", len(objects), len(files))
	}
	for _, o := range objects {
		f := files[o.Key]
		if f == nil || f.Size != o.Size {
			t.Fatalf("object %q of %d bytes is %+v", o.Key, o.Size, f)
		}
		p := make([]byte, o.Size)
		if err := o.Fill(p, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.CheckSums(p, 0); err != nil {
			t.Error(err)
		}
	}
}

func TestMissingDataSetNamesTheRemedy(t *testing.T) {
	_, err := loadData(filepath.Join(t.TempDir(), "none"), 1, 1)
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "dataset-fashion-mnist") {
		t.Errorf("error is %v", err)
	}
}

func TestSenselessSizesAreRefused(t *testing.T) {
	good := Config{Images: 10, Sample: 5, PackedBytes: 1 << 20, Readers: 1}
	if err := good.validate(); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*Config){
		func(c *Config) { c.Images = mostImages + 1 },
		func(c *Config) { c.Images = 0 },
		func(c *Config) { c.Sample = 11 },
		func(c *Config) { c.PackedBytes = 1 },
		func(c *Config) { c.Readers = 0 },
	} {
		cfg := good
		change(&cfg)
		if cfg.validate() == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
	huge := Config{Images: 10, Out: t.TempDir(), PackedBytes: 1 << 60}
	if err := huge.makeRoom(); err == nil || !strings.Contains(err.Error(), "--big") {
		t.Errorf("an exabyte: %v", err)
	}
}

func TestEarlierDemoIsEndedAndStrangersAreNot(t *testing.T) {
	out := t.TempDir()
	cfg := Config{Out: out, Stderr: io.Discard}
	// A stranger has the pid that the file names for the server by now.
	stranger, left := exec.Command("sleep", "100"), exec.Command("sh", "-c", "sleep 100 # "+out)
	for _, c := range []*exec.Cmd{stranger, left} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Process.Kill() }()
	}
	// It has been started, and its command line may not be there yet.
	for command := ""; !strings.Contains(command, out); time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", left.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		command = string(b)
	}
	ended := make(chan error, 1)
	go func() { ended <- left.Wait() }()
	for _, dir := range dataDirs {
		if err := os.MkdirAll(filepath.Join(out, dir, "x"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	picture := filepath.Join(out, "demo.png")
	if err := os.WriteFile(picture, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	earlier := state{Mount: filepath.Join(out, "client", "mnt"), ServerPID: stranger.Process.Pid, DaemonPID: left.Process.Pid}
	if err := cfg.saveState(earlier); err != nil {
		t.Fatal(err)
	}
	if err := cfg.endEarlier(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the process that was left ended by itself")
	}
	if err := stranger.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the stranger was ended: %v", err)
	}
	entries, err := os.ReadDir(out)
	if err != nil || len(entries) != 1 || entries[0].Name() != "demo.png" {
		t.Errorf("left are %v, %v", entries, err)
	}
	if err := cfg.endEarlier(); err != nil {
		t.Errorf("nothing to end: %v", err)
	}
}
