package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pailfs/pailfs/deploy/gpu"
)

// codeStuck is the reason of a host whose driver hangs.
const codeStuck = "DriverStuck"

// driver reads the GPUs, and says so when the driver hangs in the kernel, from where
// nobody can call it back. One goroutine uses it.
type driver struct {
	monitor *gpu.Monitor
	// patience is how long it may take to tell of all GPUs.
	patience time.Duration
	// reading is the reading that has not ended.
	reading chan gpu.Host
	since   time.Time
	// expected is how many GPUs the last reading that ended spoke of.
	expected int
}

// driver opens the GPUs as the flags say.
func (p program) driver() *driver {
	m := gpu.Open(gpu.Config{Library: p.cli.Library, StateDir: p.cli.State})
	return &driver{monitor: m, patience: p.cli.Patience}
}

// read returns a reading or, when there is none in time or before ctx ends, that the GPUs
// are unknown, with how many there should be. It begins no other one before the last one ended.
func (d *driver) read(ctx context.Context) gpu.Host {
	if d.reading == nil {
		d.reading, d.since = make(chan gpu.Host, 1), time.Now()
		go func(to chan<- gpu.Host) { to <- d.monitor.Read() }(d.reading)
	}
	select {
	case h := <-d.reading:
		d.reading, d.expected = nil, h.Expected
		return h
	case <-ctx.Done():
	case <-time.After(d.patience):
	}
	// The PCI bus is asked without the driver.
	h := gpu.Host{Time: time.Now(), Expected: max(d.expected, d.monitor.Cards())}
	message := "the driver has not answered for %s: dmesg may tell of an Xid or a hung task; restarting the host helps"
	reason := gpu.Reason{State: gpu.Unknown, Code: codeStuck, Message: fmt.Sprintf(message, h.Time.Sub(d.since).Round(time.Second))}
	h.Health = gpu.Verdict{State: gpu.Unknown, Reasons: []gpu.Reason{reason}}
	return h
}

// stuck reports whether a reading has not ended: the monitor must be left alone then.
func (d *driver) stuck() bool { return d.reading != nil && len(d.reading) == 0 }

// close lets go of the library, unless it hangs.
func (d *driver) close() error {
	if d.stuck() {
		return nil
	}
	return d.monitor.Close()
}
