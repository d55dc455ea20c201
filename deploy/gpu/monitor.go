package gpu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/pailfs/pailfs/deploy/pause"
)

// Config describes a [Monitor]. Zero values are the defaults of a real host.
type Config struct {
	// Library is the path of NVML; empty means libnvidia-ml.so.1 where the loader
	// finds it.
	Library string
	// StateDir holds what must be remembered for as long as the host is up; empty
	// means /run/pailfs. If it cannot be written, only what was seen by this process
	// is remembered.
	StateDir string
	// Sys and Proc are the mount points of sysfs and procfs; empty means /sys and
	// /proc.
	Sys, Proc string
	// NVML replaces the library, for tests.
	NVML nvml.Interface
	// Log is told what goes wrong on the way; nil discards it.
	Log *slog.Logger
}

// Monitor reads the GPUs of this host, and listens for their errors while Run
// runs. It is safe for concurrent use.
//
// The driver may be unloaded and loaded again under a monitor: a reading that
// finds its library uninitialised begins anew.
type Monitor struct {
	lib    nvml.Interface
	system system
	file   string
	log    *slog.Logger

	mu struct {
		sync.Mutex
		// ready says that the library is initialised. epoch counts how often it was, so
		// that whoever listens for events knows when its set is of the past.
		ready   bool
		epoch   int
		records map[string]*record
		census  *census
	}
}

// Open returns a monitor. It does not need a driver.
func Open(cfg Config) *Monitor {
	if cfg.StateDir == "" {
		cfg.StateDir = "/run/pailfs"
	}
	if cfg.Sys == "" {
		cfg.Sys = "/sys"
	}
	if cfg.Proc == "" {
		cfg.Proc = "/proc"
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	lib := cfg.NVML
	if lib == nil {
		var options []nvml.LibraryOption
		if cfg.Library != "" {
			options = append(options, nvml.WithLibraryPath(cfg.Library))
		}
		lib = nvml.New(options...)
	}
	m := &Monitor{lib: lib, system: system{sys: cfg.Sys, proc: cfg.Proc}, file: cfg.StateDir + "/gpus.json", log: cfg.Log}
	m.mu.records = make(map[string]*record)
	return m
}

// Close lets go of the library. No reading may be going on.
func (m *Monitor) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shutdown()
}

// shutdown uninitialises the library. The caller holds m.mu.
func (m *Monitor) shutdown() error {
	if !m.mu.ready {
		return nil
	}
	m.mu.ready = false
	if ret := m.lib.Shutdown(); ret != nvml.SUCCESS && ret != nvml.ERROR_UNINITIALIZED {
		return fmt.Errorf("shut NVML down: %s", nvml.ErrorString(ret))
	}
	return nil
}

// start initialises the library. The caller holds m.mu.
func (m *Monitor) start() nvml.Return {
	if m.mu.ready {
		return nvml.SUCCESS
	}
	if ret := m.lib.Init(); ret != nvml.SUCCESS {
		return ret
	}
	m.mu.ready = true
	m.mu.epoch++
	return nvml.SUCCESS
}

// Cards counts the GPUs on the PCI bus. It asks the kernel alone, and answers while a
// reading hangs in the driver.
func (m *Monitor) Cards() int { return len(m.system.cards()) }

// Read asks for everything once.
func (m *Monitor) Read() Host {
	m.mu.Lock()
	defer m.mu.Unlock()
	cards := m.system.cards()
	h := Host{Expected: len(cards)}
	count, ret := m.count()
	if ret != nvml.SUCCESS {
		h.Time = time.Now()
		h.Health = Verdict{State: Unknown}
		m.unreadable(&h, ret)
		return h
	}
	p := probe{m.lib}
	h.Driver, h.CUDA = p.versions()
	handles := make([]nvml.Device, count)
	processes := readTable(m.system.proc)
	for i := range count {
		var d Device
		d, handles[i] = p.device(i)
		d.NUMA = m.system.numa(d.PCI)
		for j := range d.Processes {
			processes.describe(&d.Processes[j])
		}
		h.Devices = append(h.Devices, d)
	}
	h.Links = p.links(h.Devices, handles)
	h.Devices = append(h.Devices, m.missing(h.Devices)...)
	h.Expected = max(h.Expected, len(h.Devices))
	h.Time = time.Now()
	for i := range h.Devices {
		d := &h.Devices[i]
		r := m.record(d.key())
		d.Health = r.judge(d, h.Time)
		d.XIDs = append([]XID(nil), r.xids...)
	}
	h.Health = judgeHost(&h)
	return h
}

// count initialises the library if it is not and returns the number of devices.
// The caller holds m.mu.
func (m *Monitor) count() (int, nvml.Return) {
	ret := m.start()
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	n, ret := m.lib.DeviceGetCount()
	switch ret {
	case nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		// The driver was unloaded, and perhaps another one loaded.
		if err := m.shutdown(); err != nil {
			m.log.Warn("the GPU library could not be closed", "err", err)
		}
		if ret = m.start(); ret == nvml.SUCCESS {
			n, ret = m.lib.DeviceGetCount()
		}
	}
	return n, ret
}

// unreadable says why there is no reading. The caller holds m.mu.
func (m *Monitor) unreadable(h *Host, ret nvml.Return) {
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND, nvml.ERROR_DRIVER_NOT_LOADED:
		message := "no driver: NVML (libnvidia-ml.so.1) is not on this host"
		if ret == nvml.ERROR_DRIVER_NOT_LOADED {
			message = "no driver: the library is there and the kernel module is not loaded"
		}
		if h.Expected > 0 {
			message += fmt.Sprintf("; %d NVIDIA GPUs are on the PCI bus: install or load the driver", h.Expected)
		}
		h.Health.add(Unknown, "NoDriver", "%s", message)
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		h.Health.add(Unknown, "DriverMismatch", "library and kernel module are of different versions: restart the host or reload the module")
	default:
		h.Health.add(Unknown, "Unreadable", "NVML cannot be used: %s", nvml.ErrorString(ret))
	}
}

// missing returns the devices that were seen since boot and are not among those
// just read. The caller holds m.mu.
func (m *Monitor) missing(devices []Device) []Device {
	if m.mu.census == nil {
		c, err := readCensus(m.file, m.system.boot())
		if err != nil {
			m.log.Warn("the list of GPUs seen since boot is not readable", "err", err)
		}
		m.mu.census = &c
	}
	news, missing := m.mu.census.take(devices)
	if news {
		if err := m.mu.census.write(m.file); err != nil {
			m.log.Warn("the list of GPUs seen since boot was not written; a GPU that vanishes is missed only while this process runs", "err", err)
		}
	}
	return missing
}

// key names d's record.
func (d *Device) key() string {
	if d.UUID != "" {
		return d.UUID
	}
	return fmt.Sprintf("index %d", d.Index)
}

// record returns what is remembered of a GPU. The caller holds m.mu.
func (m *Monitor) record(key string) *record {
	r := m.mu.records[key]
	if r == nil {
		r = &record{}
		m.mu.records[key] = r
	}
	return r
}

const (
	// eventWait is how long one call waits for an event, eventRetry how long the next
	// try to listen does after one that failed.
	eventWait  = time.Second
	eventRetry = 5 * time.Second
)

// Run listens for errors that the driver reports until ctx ends, and calls news
// after each with its GPU's UUID. Without a driver it waits for one.
func (m *Monitor) Run(ctx context.Context, news func(uuid string, x XID)) error {
	for ctx.Err() == nil {
		if err := m.listen(ctx, news); err != nil {
			m.log.Debug("not listening for GPU errors", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(eventRetry):
		}
	}
	return ctx.Err()
}

// errRestarted says that the library was initialised anew.
var errRestarted = errors.New("the library was initialised anew")

// listen waits for events of all devices until something goes wrong.
func (m *Monitor) listen(ctx context.Context, news func(uuid string, x XID)) error {
	set, epoch, err := m.subscribe()
	if err != nil {
		return err
	}
	defer func() { _ = set.Free() }() // the library may be gone already
	for ctx.Err() == nil {
		if m.now() != epoch {
			return errRestarted
		}
		e, ret := set.Wait(uint32(eventWait.Milliseconds()))
		switch ret {
		case nvml.SUCCESS:
		case nvml.ERROR_TIMEOUT:
			continue
		case nvml.ERROR_GPU_IS_LOST:
			// The event of the loss may be lost with it; the next reading says so.
			if !pause.For(ctx, eventWait) {
				return ctx.Err()
			}
			continue
		default:
			return fmt.Errorf("wait for GPU events: %s", nvml.ErrorString(ret))
		}
		if e.EventType&nvml.EventTypeXidCriticalError == 0 {
			continue
		}
		m.report(e, news)
	}
	return ctx.Err()
}

// now returns the epoch, 0 if the library is not initialised.
func (m *Monitor) now() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.mu.ready {
		return 0
	}
	return m.mu.epoch
}

// subscribe registers all devices for the errors that they can report.
func (m *Monitor) subscribe() (nvml.EventSet, int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	count, ret := m.count()
	if ret != nvml.SUCCESS {
		return nil, 0, errors.New(nvml.ErrorString(ret))
	}
	set, ret := m.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, 0, fmt.Errorf("make an event set: %s", nvml.ErrorString(ret))
	}
	for i := range count {
		d, ret := m.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // a reading says what is wrong with it
		}
		supported, ret := d.GetSupportedEventTypes()
		if ret != nvml.SUCCESS || supported&nvml.EventTypeXidCriticalError == 0 {
			continue
		}
		if ret := d.RegisterEvents(nvml.EventTypeXidCriticalError, set); ret != nvml.SUCCESS {
			m.log.Warn("a GPU's errors are not heard", "index", i, "err", nvml.ErrorString(ret))
		}
	}
	return set, m.mu.epoch, nil
}

// report remembers an event. One whose GPU does not say its name any more counts
// against every GPU seen, as in NVIDIA's device plugin: better idle than wrong.
func (m *Monitor) report(e nvml.EventData, news func(uuid string, x XID)) {
	x := XID{Code: e.EventData, Time: time.Now(), Instance: -1}
	if e.GpuInstanceId != ^uint32(0) {
		x.Instance = int(e.GpuInstanceId)
	}
	m.mu.Lock()
	var keys []string
	if e.Device != nil {
		if uuid, ret := e.Device.GetUUID(); ret == nvml.SUCCESS {
			keys = []string{uuid}
		}
	}
	if len(keys) == 0 && m.mu.census != nil {
		for uuid := range m.mu.census.Seen {
			keys = append(keys, uuid)
		}
	}
	for _, key := range keys {
		m.record(key).note(x)
	}
	m.mu.Unlock()
	for _, key := range keys {
		m.log.Warn("the driver reported an error of a GPU", "uuid", key, "xid", x.Code, "meaning", x.meaning())
		if news != nil {
			news(key, x)
		}
	}
}
