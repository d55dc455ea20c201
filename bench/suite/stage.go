package suite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/bench/bare"
	"github.com/pailfs/pailfs/bench/dataset"
	"github.com/pailfs/pailfs/bench/rig"
	"github.com/pailfs/pailfs/bench/workload"
)

// stage keeps the data sets: their manifests, their plain copies on disk, and
// what the bucket holds. Each is made when it is first asked for.
type stage struct {
	work  string
	sizes workload.Sizes

	manifests map[workload.Set]*dataset.Manifest
	onDisk    map[workload.Set]bool
	inBucket  map[workload.Set]bool
}

func newStage(work string, sizes workload.Sizes) *stage {
	return &stage{
		work: work, sizes: sizes, manifests: map[workload.Set]*dataset.Manifest{},
		onDisk: map[workload.Set]bool{}, inBucket: map[workload.Set]bool{},
	}
}

func (s *stage) manifestPath(set workload.Set) string {
	return filepath.Join(s.work, string(set)+".json")
}

func (s *stage) diskDir(set workload.Set) string { return filepath.Join(s.work, "disk", string(set)) }

// prefix is where a set lies in the bucket.
func prefix(set workload.Set) string { return string(set) + "/" }

// manifest returns the manifest of set, which then also lies at manifestPath.
func (s *stage) manifest(set workload.Set) (*dataset.Manifest, error) {
	if m := s.manifests[set]; m != nil {
		return m, nil
	}
	m := filesOf(s.sizes, set)
	if err := m.AddSums(); err != nil {
		return nil, err
	}
	if err := m.Save(s.manifestPath(set)); err != nil {
		return nil, err
	}
	s.manifests[set] = m
	return m, nil
}

// putOnDisk writes the plain copy of set.
func (s *stage) putOnDisk(ctx context.Context, set workload.Set) error {
	if s.onDisk[set] {
		return nil
	}
	m, err := s.manifest(set)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range m.Files {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error { return writeFile(m, &m.Files[i], s.diskDir(set)) })
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("put set %q on disk: %w", set, err)
	}
	s.onDisk[set] = true
	return nil
}

func writeFile(m *dataset.Manifest, f *dataset.File, dir string) (err error) {
	path := filepath.Join(dir, f.Name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if closed := file.Close(); err == nil {
			err = closed
		}
	}()
	content, _ := m.Content(f)
	buf := make([]byte, min(4<<20, f.Size))
	for offset := int64(0); offset < f.Size; offset += int64(len(buf)) {
		p := buf[:min(int64(len(buf)), f.Size-offset)]
		content.Fill(p, offset)
		if _, err := file.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// putInBucket stores set in the bucket of server.
func (s *stage) putInBucket(ctx context.Context, server *rig.Server, set workload.Set) error {
	if s.inBucket[set] {
		return nil
	}
	m, err := s.manifest(set)
	if err != nil {
		return err
	}
	client, err := bare.Open(server.Bucket())
	if err != nil {
		return err
	}
	defer client.Close()
	objects := make([]bare.Object, len(m.Files))
	for i := range objects {
		f := &m.Files[i]
		content, _ := m.Content(f)
		objects[i] = bare.Object{
			Key: prefix(set) + f.Name, Size: f.Size, Period: f.Period,
			Fill: func(p []byte, offset int64) error {
				content.Fill(p, offset)
				return nil
			},
		}
	}
	if err := client.Load(ctx, objects, 8, nil); err != nil {
		return fmt.Errorf("put set %q in bucket: %w", set, err)
	}
	s.inBucket[set] = true
	return nil
}

// dropFromBucket removes set from the bucket of server, for its space.
func (s *stage) dropFromBucket(ctx context.Context, server *rig.Server, set workload.Set) error {
	client, err := bare.Open(server.Bucket())
	if err != nil {
		return err
	}
	defer client.Close()
	s.inBucket[set] = false
	if err := client.DeleteAll(ctx, prefix(set)); err != nil {
		return fmt.Errorf("remove set %q from bucket: %w", set, err)
	}
	return nil
}
