package suite

import (
	"bytes"
	"context"
	_ "embed" // the program that saves
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/pailfs/pailfs/bench/bare"
	"github.com/pailfs/pailfs/bench/child"
	"github.com/pailfs/pailfs/bench/reader"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/workload"
	"github.com/pailfs/pailfs/bench/writer"
)

// saveProgram calls torch.save.
//
//go:embed save.py
var saveProgram string

// saved is what the program answers.
type saved struct {
	Began   int64     `json:"began"`
	Seconds float64   `json:"seconds"`
	Stalls  []float64 `json:"stalls"`
	Left    []string  `json:"left"`
}

// python is Debian's: it has torch.
const python = "/usr/bin/python3"

// save measures how long the program waits for torch.save.
func (b *writeBench) save(ctx context.Context) (err error) {
	if b.job.Root == "" {
		return errors.New("torch.save needs a directory")
	}
	job := struct {
		workload.Saving
		Root      string `json:"root"`
		Reference string `json:"reference,omitempty"`
	}{Saving: *b.workload.Task.Save, Root: b.job.Root}
	if !b.fromDisk() {
		job.Reference = filepath.Join(b.place.Work, "reference")
		if err := os.Mkdir(job.Reference, 0o755); err != nil {
			return err
		}
	}
	var s saved
	sample, _, err := b.runner.timed(ctx, b.session.Daemons(), func() (reader.Outcome, child.CPU, error) {
		var cpu child.CPU
		var err error
		if s, cpu, err = child.Run[saved](ctx, []string{python, "-c", saveProgram}, job); err != nil {
			return reader.Outcome{}, cpu, fmt.Errorf("save: %w", err)
		}
		return reader.Outcome{Seconds: s.Seconds, Latencies: s.Stalls, Ops: int64(len(s.Stalls)), Bytes: job.Bytes * int64(job.Rounds)}, cpu, nil
	})
	if err != nil {
		return err
	}
	for _, stall := range s.Stalls {
		sample.Value += stall / float64(len(s.Stalls))
	}
	b.add(b.workload.Name, result.Seconds, sample)
	if want := min(job.Rounds, job.Keep+1); len(s.Left) != want {
		return fmt.Errorf("%d checkpoints are left, want %d: %v", len(s.Left), want, s.Left)
	}
	if b.fromDisk() {
		return nil
	}
	for _, name := range s.Left {
		info, err := os.Stat(filepath.Join(job.Reference, name))
		if err != nil {
			return err
		}
		b.expected = append(b.expected, writer.File{Name: name, Size: info.Size()})
	}
	if _, err := b.arrive(ctx); err != nil {
		return err
	}
	return b.withBucket(func(client *bare.Client) error {
		for _, f := range b.expected {
			if err := compareObject(ctx, client, b.place.Prefix+f.Name, filepath.Join(job.Reference, f.Name), f.Size); err != nil {
				return err
			}
		}
		return nil
	})
}

// compareObject compares every byte of an object with a file.
func compareObject(ctx context.Context, client *bare.Client, key, path string, size int64) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	const piece = 16 << 20
	want, got := make([]byte, piece), make([]byte, piece)
	for off := int64(0); off < size; off += piece {
		n := min(piece, size-off)
		if _, err := io.ReadFull(file, want[:n]); err != nil {
			return err
		}
		if _, err := client.ReadRange(ctx, key, off, got[:n]); err != nil {
			return err
		}
		if !bytes.Equal(want[:n], got[:n]) {
			return fmt.Errorf("object %q differs from what was saved, in the %d bytes at %d", key, n, off)
		}
	}
	return nil
}
