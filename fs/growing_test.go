package fs

import (
	"bytes"
	"os"
	"testing"
	"time"
)

func TestLargeFilesAreSentWhileTheyAreWritten(t *testing.T) {
	bothModes(t, func(t *testing.T, w *written) {
		f, err := os.Create(w.path("model"))
		must(t, err)
		defer f.Close()
		content := random(1, 30<<20)
		_, err = f.Write(content)
		must(t, err)
		eventually(t, "the whole parts are sent", func() bool { return w.Server.Stats().BytesIn >= 24<<20 })
		if len(w.Keys("")) > 0 {
			t.Error("the object is there before the file was closed")
		}
		before := w.Server.Stats().BytesIn
		must(t, f.Close())
		w.drain(t)
		w.holds(t, "model", content)
		if sent := w.Server.Stats().BytesIn - before; sent > 8<<20 {
			t.Errorf("%d bytes were sent after the close, want the last part alone", sent)
		}
	})
}

func TestOnlyWhatWasAppendedIsSent(t *testing.T) {
	bothModes(t, func(t *testing.T, w *written) {
		const line, times = 256 << 10, 8
		content := random(2, line*times)
		for n := range times {
			f, err := os.OpenFile(w.path("log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
			must(t, err)
			_, err = f.Write(content[n*line : (n+1)*line])
			must(t, err)
			must(t, f.Close())
			w.drain(t)
		}
		w.holds(t, "log", content)
		// The requests to copy and to complete have bodies of their own.
		if sent := w.Server.Stats().BytesIn; sent > line*times+64<<10 {
			t.Errorf("%d bytes were sent for %d that were appended in %d steps", sent, len(content), times)
		}
	})
}

// TestLogsAreSeenElsewhereWhileTheyGrow: a program redirects into a file, as
// `python train.py > log` does, and neither syncs nor closes it.
func TestLogsAreSeenElsewhereWhileTheyGrow(t *testing.T) {
	t.Parallel()
	w := mountWritten(t, startStore(t), writtenOptions{config: Config{PassthroughMin: 1}})
	f, err := os.Create(w.path("log"))
	must(t, err)
	defer f.Close()
	var content []byte
	add := func() {
		line := []byte(time.Now().String() + "\n")
		_, err := f.Write(line)
		must(t, err)
		content = append(content, line...)
	}
	seen := func() bool {
		if len(w.Keys("")) == 0 {
			return false
		}
		got := w.Get("log")
		if !bytes.HasPrefix(content, got) {
			t.Fatalf("the bucket shows %q, which the log never was", got)
		}
		return len(got) > 0
	}
	// It takes ten seconds to look like a log.
	for deadline := time.Now().Add(patience); !seen(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the log was never in the bucket")
		}
		add()
	}
	must(t, f.Close())
	w.drain(t)
	w.holds(t, "log", content)
}
