package publish

import (
	"context"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/oss"
)

const (
	// fetchPart is how much is asked for at once, fetchParallel how often.
	fetchPart     = 8 << 20
	fetchParallel = 8
)

// fileName is the name of a fetched generation.
func (g Generation) fileName() string {
	return fmt.Sprintf("%0*d-%016x%s", numberDigits, g.Number, g.CRC64, suffix)
}

// Fetch returns the path of g's file in dir, which is made if missing. A file that
// is there was checked when it was fetched, and costs no request. One that is not
// is downloaded, compared with the checksum, flushed to disk and given its name;
// what a killed process left is no file of that name.
//
// oss.ErrNotFound and oss.ErrChanged mean that the generation is not kept any more:
// ask for the Latest again. progress, if set, is told of bytes as they come, from
// many goroutines.
func Fetch(ctx context.Context, bucket oss.RangeReader, g Generation, dir string, progress func(bytes int64)) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("fetch manifest: %w", err)
	}
	path := filepath.Join(dir, g.fileName())
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() == g.Object.Size {
		return path, nil
	}
	f, err := os.CreateTemp(dir, g.fileName()+".*.tmp")
	if err != nil {
		return "", fmt.Errorf("fetch manifest: %w", err)
	}
	err = fetch(ctx, bucket, g, f, progress)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return "", fmt.Errorf("fetch generation %d of the manifest: %w", g.Number, err)
	}
	return path, nil
}

// fetch writes the content of g to f and checks it.
func fetch(ctx context.Context, bucket oss.RangeReader, g Generation, f *os.File, progress func(int64)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fetchParallel)
	for at := int64(0); at < g.Object.Size; at += fetchPart {
		group.Go(func() error {
			part := make([]byte, min(fetchPart, g.Object.Size-at))
			if _, err := bucket.ReadRange(ctx, oss.RangeRequest{Object: g.Object, Offset: at, Buffer: part}); err != nil {
				return err
			}
			if progress != nil {
				progress(int64(len(part)))
			}
			_, err := f.WriteAt(part, at)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	sum := crc64.New(ecma)
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if sum.Sum64() != g.CRC64 {
		return fmt.Errorf("%w: its CRC-64 is %d, published as %d: publish again with pailfs manifest build", oss.ErrCorrupted, sum.Sum64(), g.CRC64)
	}
	return nil
}

// abandoned is the age from which an unfinished download is nobody's any more.
const abandoned = 24 * time.Hour

// Prune removes fetched manifests from dir but for those of keep, and what killed
// processes left a day ago. Files in use stay readable to who has them open.
func Prune(dir string, keep ...Generation) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("prune manifests: %w", err)
	}
	kept := map[string]bool{}
	for _, g := range keep {
		kept[g.fileName()] = true
	}
	var failed error
	for _, e := range entries {
		name := e.Name()
		whole := strings.HasSuffix(name, suffix)
		part := strings.Contains(name, suffix+".") && strings.HasSuffix(name, ".tmp")
		if !whole && !part || kept[name] || !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); part && (err != nil || time.Since(info.ModTime()) < abandoned) {
			continue // gone, or somebody is at it
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			failed = errors.Join(failed, fmt.Errorf("prune manifests: %w", err))
		}
	}
	return failed
}
