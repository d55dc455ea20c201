package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/bench/bare"
	"github.com/pailfs/pailfs/bench/dataset"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
	"github.com/pailfs/pailfs/cmd/terminal"
)

const bucketName = "fashion"

// Run shows the demo. It cleans up behind itself, whatever happens, unless it
// succeeds and cfg.Keep is set.
func Run(ctx context.Context, cfg Config) (err error) {
	if err := cfg.validate(); err != nil {
		return err
	}
	if cfg.Out, err = filepath.Abs(cfg.Out); err != nil {
		return fmt.Errorf("find %q: %w", cfg.Out, err)
	}
	if err := cfg.endEarlier(); err != nil {
		return err
	}
	if err := cfg.makeRoom(); err != nil {
		return err
	}
	s := &show{Config: cfg}
	err = s.run(ctx)
	if err == nil && cfg.Keep {
		return s.explain()
	}
	return errors.Join(err, s.stop(context.WithoutCancel(ctx)), cfg.removeData())
}

// show is a demo under way.
type show struct {
	Config

	data    *data
	server  *rig.Server
	session *rig.PailfsSession
	found   findings
}

func (s *show) run(ctx context.Context) error {
	if err := s.step(ctx, "unpacking %d images of Fashion-MNIST and packing them into a file of %s", s.Images, showBytes(s.PackedBytes)); err != nil {
		return err
	}
	var err error
	if s.data, err = loadData(s.Data, s.Images, s.PackedBytes); err != nil {
		return err
	}
	if err := s.data.images.Save(s.path("images.json")); err != nil {
		return err
	}
	if err := s.data.packed.Save(s.path("packed.json")); err != nil {
		return err
	}
	if err := s.step(ctx, "writing a plain copy to the disk"); err != nil {
		return err
	}
	if err := s.writePlain(ctx); err != nil {
		return err
	}
	if err := s.load(ctx); err != nil {
		return err
	}
	if err := s.mount(ctx); err != nil {
		return err
	}
	if err := s.read(ctx); err != nil {
		return err
	}
	return s.present()
}

// writePlain writes the copy that pailfs is compared with.
func (s *show) writePlain(ctx context.Context) error {
	objects := s.data.objects()
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range objects {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error { return s.writeFile(ctx, &objects[i]) })
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("write plain copy: %w", err)
	}
	return ctx.Err()
}

func (s *show) writeFile(ctx context.Context, o *bare.Object) (err error) {
	path := s.path(filepath.Join("disk", o.Key))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := make([]byte, min(4<<20, o.Size))
	for offset := int64(0); offset < o.Size; offset += int64(len(buf)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		p := buf[:min(int64(len(buf)), o.Size-offset)]
		if err := o.Fill(p, offset); err != nil {
			return err
		}
		if _, err := f.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// load fills the bucket of a fast server, which is then started anew with the
// profile.
func (s *show) load(ctx context.Context) error {
	if err := s.step(ctx, "starting the server and loading %d objects, %s, into oss://%s", len(s.data.files)+1, showBytes(s.data.bytes()), bucketName); err != nil {
		return err
	}
	if err := s.serve(ctx, ""); err != nil {
		return err
	}
	client, err := bare.Open(s.server.Bucket())
	if err != nil {
		return err
	}
	defer client.Close()
	var loaded atomic.Int64
	stop := terminal.NewByteProgress(s.Stderr).Watch(func(p *terminal.Progress) { p.Show("  loading", loaded.Load(), s.data.bytes()) })
	start := time.Now()
	err = client.Load(ctx, s.data.objects(), 8, func(n int64) { loaded.Add(n) })
	stop()
	if err != nil {
		return fmt.Errorf("load the bucket: %w", err)
	}
	s.say("  %d objects in %.1f s", len(s.data.files)+1, time.Since(start).Seconds())
	if err := s.server.Stop(); err != nil {
		return err
	}
	s.server = nil
	return s.serve(ctx, s.Profile)
}

func (s *show) serve(ctx context.Context, profile string) error {
	if err := os.MkdirAll(s.path("server/data"), 0o755); err != nil {
		return fmt.Errorf("start server: %w", err)
	}
	var err error
	s.server, err = rig.StartServer(ctx, rig.ServerConfig{
		Programs: s.Programs, Dir: s.path("server/data"), Log: s.path("server/log"),
		Bucket: bucketName, Link: rig.Link{Profile: profile}, Stays: s.Keep,
	})
	return errors.Join(err, s.remember())
}

// remember saves what is running.
func (s *show) remember() error {
	var now state
	if s.server != nil {
		now.ServerPID = s.server.PID()
	}
	if s.session != nil {
		now.DaemonPID, now.Mount = s.session.Daemons()[0], s.session.Mount
	}
	return s.saveState(now)
}

func (s *show) mount(ctx context.Context) error {
	if err := s.step(ctx, "mounting oss://%s", bucketName); err != nil {
		return err
	}
	if err := os.MkdirAll(s.path("client"), 0o755); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	driver := rig.Pailfs{Stays: s.Keep}
	session, err := driver.Start(ctx, rig.Place{
		Programs: s.Programs, Work: s.path("client"), Disk: s.path("disk"), Server: s.server,
	})
	if err != nil {
		return err
	}
	s.session = session.(*rig.PailfsSession)
	return s.remember()
}

// stop ends what is running.
func (s *show) stop(ctx context.Context) error {
	var err error
	if s.session != nil {
		err = s.session.Stop(ctx)
	}
	if s.server != nil {
		err = errors.Join(err, s.server.Stop())
	}
	return err
}

func showBytes(n int64) string { return result.ShowValue(float64(n), result.ResidentBytes) }

// names are the names of files.
func names(files []dataset.File) []string {
	all := make([]string, len(files))
	for i := range files {
		all[i] = files[i].Name
	}
	return all
}
