package rig

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/pailfs/pailfs/bench/reader"
)

// Driver is one client in one configuration.
type Driver interface {
	// Name identifies the driver in commands and results.
	Name() string
	// Source is where the driver gets the bytes from.
	Source() Source
	// Start makes the data of p readable. A session that was started in the same
	// p.Work before has left its cache there, and this one goes on with it.
	Start(ctx context.Context, p Place) (Session, error)
}

// Source is a place that must hold the data before a driver is started.
type Source int

// The sources.
const (
	// FromBucket means the server's bucket.
	FromBucket Source = iota
	// FromDisk means the plain copy on disk.
	FromDisk
)

// Place is what a driver is given to work with.
type Place struct {
	// Programs is the directory of the programs that were built here.
	Programs string
	// Work is a directory of the driver's own, for cache, mount point and log.
	Work string
	// Disk is the directory that holds a plain copy of the data, or takes what is
	// written.
	Disk string
	// Writes says that files are written.
	Writes bool
	// Server holds the data below Prefix, which ends with a slash.
	Server *Server
	Prefix string
	// CacheBytes bounds the driver's cache, memory and disk together, where it can be;
	// 0 means its default.
	CacheBytes int64
}

// ErrUnsettled means that a client's cache does not hold all that was read. pailfs
// leaves out of its SSD tier what the disk cannot take in time.
var ErrUnsettled = errors.New("not whole in the client's cache")

// Session is a client at work.
type Session interface {
	// Aim completes a job with where this client shows the data.
	Aim(job *reader.Job)
	// Root is the directory where this client shows the data, "" if it has none.
	Root() string
	// Daemons are the processes that work for the reader beside itself.
	Daemons() []int
	// Settle waits until the client has finished, for these files, what it does
	// behind the reader's back, such as filling its cache. ErrUnsettled says that it
	// left something out, which reading once more may bring in.
	Settle(ctx context.Context, names []string) error
	// Flush asks the client to bring what was written into the bucket, and waits for
	// that if it can be waited for.
	Flush(ctx context.Context) error
	// Stop ends the client. Its cache stays in the Place's Work.
	Stop(ctx context.Context) error
}

// Drivers returns all drivers by name.
func Drivers() map[string]Driver {
	drivers := map[string]Driver{}
	for _, d := range []Driver{Disk{}, Bare{}, Pailfs{}, PailfsImmutable(), PailfsNoPassthrough()} {
		drivers[d.Name()] = d
	}
	for _, d := range Peers() {
		drivers[d.Name()] = d
	}
	return drivers
}

// Disk reads a plain copy: the limit of the machine's disk and page cache.
type Disk struct{}

var _ Driver = Disk{}

// Name implements [Driver].
func (Disk) Name() string { return "disk" }

// Source implements [Driver].
func (Disk) Source() Source { return FromDisk }

// Start implements [Driver].
func (Disk) Start(_ context.Context, p Place) (Session, error) { return diskSession{p.Disk}, nil }

type diskSession struct{ root string }

func (s diskSession) Root() string                         { return s.root }
func (s diskSession) Aim(job *reader.Job)                  { job.Root = s.root }
func (diskSession) Daemons() []int                         { return nil }
func (diskSession) Settle(context.Context, []string) error { return nil }
func (diskSession) Flush(context.Context) error            { return nil }
func (diskSession) Stop(context.Context) error             { return nil }

// Bare sends requests without a file system: the limit of the link.
type Bare struct{}

var _ Driver = Bare{}

// Name implements [Driver].
func (Bare) Name() string { return "bare" }

// Source implements [Driver].
func (Bare) Source() Source { return FromBucket }

// Start implements [Driver].
func (Bare) Start(_ context.Context, p Place) (Session, error) { return bareSession{p}, nil }

type bareSession struct{ place Place }

func (s bareSession) Aim(job *reader.Job) {
	bucket := s.place.Server.Bucket()
	job.Bucket, job.Prefix = &bucket, s.place.Prefix
}
func (bareSession) Root() string                           { return "" }
func (bareSession) Daemons() []int                         { return nil }
func (bareSession) Settle(context.Context, []string) error { return nil }
func (bareSession) Flush(context.Context) error            { return nil }
func (bareSession) Stop(context.Context) error             { return nil }

// joinStop adds what went wrong in cleaning up to the error that made it
// necessary.
func joinStop(err, stop error) error { return errors.Join(err, stop) }

// filesIn returns the paths of names below root.
func filesIn(root string, names []string) []string {
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = filepath.Join(root, name)
	}
	return paths
}
