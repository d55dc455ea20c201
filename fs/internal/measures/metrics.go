package measures

import (
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// Operation numbers the requests that are timed.
type Operation uint8

// The requests.
const (
	Lookup Operation = iota
	Getattr
	Readlink
	Open
	Read
	Flush
	Release
	Opendir
	Readdir
	Readdirplus
	Releasedir
	Statfs
	Getxattr
	Listxattr
	Ioctl
	Create
	Write
	Fsync
	Setattr
	Mkdir
	Unlink
	Rmdir
	Rename
	Symlink
	Copy
	Setxattr
	Removexattr
	operations
)

var operationNames = [operations]string{
	"lookup", "getattr", "readlink", "open", "read", "flush", "release", "opendir", "readdir", "readdirplus",
	"releasedir", "statfs", "getxattr", "listxattr", "ioctl", "create", "write", "fsync", "setattr", "mkdir", "unlink",
	"rmdir", "rename", "symlink", "copy_file_range",
	"setxattr", "removexattr",
}

// Counters are the figures that both status and metrics show.
type Counters struct {
	OpenFiles, OpenDirs    atomic.Int64
	Cached, Passthrough    atomic.Int64
	Reads, ReadBytes       atomic.Int64
	Writes, WrittenBytes   atomic.Int64
	Stale, Errors, Dropped atomic.Int64
}

// Metrics are what the package exports.
type Metrics struct {
	durations [operations]prometheus.Observer
	errors    *prometheus.CounterVec
	// ReadSizes observes the sizes of READs in bytes.
	ReadSizes prometheus.Observer
	collect   []prometheus.Collector
}

// New registers what the package exports; inodes tells how many the kernel knows.
func New(reg prometheus.Registerer, c *Counters, inodes func() float64) (*Metrics, error) {
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "pailfs_fs_request_duration_seconds",
		Help:    "Time from a request of the kernel to our answer, by operation.",
		Buckets: []float64{10e-6, 30e-6, 100e-6, 300e-6, 1e-3, 3e-3, 10e-3, 30e-3, 0.1, 0.3, 1, 3, 10},
	}, []string{"op"})
	sizes := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "pailfs_fs_read_request_bytes",
		Help:    "Size of the READ requests of the kernel.",
		Buckets: prometheus.ExponentialBuckets(4096, 4, 5),
	})
	m := &Metrics{
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pailfs_fs_request_errors_total",
			Help: "Requests answered with an error, by operation and errno.",
		}, []string{"op", "errno"}),
		ReadSizes: sizes,
	}
	for op := range m.durations {
		m.durations[op] = durations.WithLabelValues(operationNames[op])
	}
	m.collect = []prometheus.Collector{
		durations, sizes, m.errors,
		gauge("pailfs_fs_open_files", "Files open now. With no-open the kernel does not tell.", &c.OpenFiles),
		gauge("pailfs_fs_open_directories", "Directories open now.", &c.OpenDirs),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pailfs_fs_inodes", Help: "Inodes that the kernel knows.",
		}, inodes),
		counter("pailfs_fs_opens_total", "Opens by the way the file is read.", "cached", &c.Cached),
		counter("pailfs_fs_opens_total", "Opens by the way the file is read.", "passthrough", &c.Passthrough),
		counter("pailfs_fs_reads_total", "READ requests. Reads from the kernel's cache and in passthrough make none.", "", &c.Reads),
		counter("pailfs_fs_read_bytes_total", "Bytes answered to READ requests.", "", &c.ReadBytes),
		counter("pailfs_fs_writes_total", "WRITE requests. Writes in passthrough make none.", "", &c.Writes),
		counter("pailfs_fs_written_bytes_total", "Bytes taken from WRITE requests.", "", &c.WrittenBytes),
		counter("pailfs_fs_stale_objects_total", "Object versions that were found replaced when they were read.", "", &c.Stale),
		counter("pailfs_fs_dropped_notifications_total", "Notifications to the kernel that were dropped because too many waited.", "", &c.Dropped),
	}
	return m, m.register(reg)
}

// register registers everything, or nothing and returns why.
func (m *Metrics) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	for i, c := range m.collect {
		if err := reg.Register(c); err != nil {
			for _, done := range m.collect[:i] {
				reg.Unregister(done)
			}
			return err
		}
	}
	return nil
}

// Unregister takes the metrics of a mount that is gone away.
func (m *Metrics) Unregister(reg prometheus.Registerer) {
	if reg == nil {
		return
	}
	for _, c := range m.collect {
		reg.Unregister(c)
	}
}

func gauge(name, help string, v *atomic.Int64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(v.Load()) })
}

func counter(name, help, mode string, v *atomic.Int64) prometheus.Collector {
	opts := prometheus.CounterOpts{Name: name, Help: help}
	if mode != "" {
		opts.ConstLabels = prometheus.Labels{"mode": mode}
	}
	return prometheus.NewCounterFunc(opts, func() float64 { return float64(v.Load()) })
}

// Done records a request that began at start.
func (m *Metrics) Done(op Operation, start time.Time, status fuse.Status) {
	m.durations[op].Observe(time.Since(start).Seconds())
	if status != fuse.OK {
		m.errors.WithLabelValues(operationNames[op], unix.ErrnoName(syscall.Errno(status))).Inc()
	}
}
