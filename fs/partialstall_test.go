package fs

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/pailfs/pailfs/oss"
)

// stalledReader does not answer while it is stalled, until who asks gives up.
type stalledReader struct {
	oss.RangeReader
	stalled *atomic.Bool
	waiting chan struct{}
}

func (s stalledReader) ReadRange(ctx context.Context, r oss.RangeRequest) (oss.RangeResult, error) {
	if !s.stalled.Load() {
		return s.RangeReader.ReadRange(ctx, r)
	}
	select {
	case s.waiting <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return oss.RangeResult{}, ctx.Err()
}

// TestWriteThatWaitsForTheStoreHoldsUpNoReader: what a write leaves of a chunk does not come. Others
// see and read the file meanwhile, and who waits can be killed.
func TestWriteThatWaitsForTheStoreHoldsUpNoReader(t *testing.T) {
	var stalled atomic.Bool
	waiting := make(chan struct{}, 1)
	e := startStore(t)
	content := random(5, 16<<20)
	e.Put("large", content)
	w := mountWritten(t, e, writtenOptions{
		reader: func(r oss.RangeReader) oss.RangeReader { return stalledReader{r, &stalled, waiting} },
	})
	f, err := os.OpenFile(w.path("large"), os.O_RDWR, 0)
	must(t, err)
	chunk := random(6, 1<<20)
	_, err = f.WriteAt(chunk, 0)
	must(t, err)
	copy(content, chunk)
	stalled.Store(true)
	cmd := exec.Command("python3", "-c", "import os,sys\nfd=os.open(sys.argv[1],os.O_RDWR)\nos.pwrite(fd,b'torn',5<<20|7)", w.path("large"))
	must(t, cmd.Start())
	<-waiting
	info, err := os.Stat(w.path("large"))
	must(t, err)
	if info.Size() != int64(len(content)) {
		t.Errorf("size %d", info.Size())
	}
	reader, err := os.Open(w.path("large"))
	must(t, err)
	got := make([]byte, 4096)
	_, err = reader.ReadAt(got, 8192)
	must(t, err)
	if !bytes.Equal(got, content[8192:8192+4096]) {
		t.Error("what was written reads otherwise")
	}
	must(t, reader.Close())
	must(t, cmd.Process.Kill())
	if err := cmd.Wait(); err == nil {
		t.Error("the write that waited was not killed")
	}
	stalled.Store(false)
	must(t, f.Close())
	w.drain(t)
	same(t, readAll(t, w.path("large")), content)
}
