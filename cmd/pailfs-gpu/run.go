package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/pailfs/pailfs/deploy/gpu"
)

// runCmd is `pailfs run`.
type runCmd struct {
	GPUs     int           `name:"gpus" default:"1" help:"How many GPUs; 0 runs without choosing any."`
	MinFree  string        `name:"min-free" default:"0" placeholder:"SIZE" help:"Free memory that each GPU must have, such as 40GiB."`
	Shared   bool          `name:"shared" help:"Also use GPUs on which something runs."`
	Mount    string        `name:"mount" placeholder:"DIR" help:"A pailfs mount that must be healthy, and stay so."`
	Datasets []string      `name:"dataset" placeholder:"PATH" help:"File or folder in the mount that is brought to the cache first; may be given more than once."`
	NoWait   bool          `name:"start-cold" help:"Start at once, and bring datasets to the cache meanwhile."`
	Wait     time.Duration `name:"wait" default:"10m" help:"How long to wait for the mount, and for GPUs."`
	Restarts int           `name:"restarts" default:"0" placeholder:"N" help:"Start the command again after its mount failed, up to N times; it must resume from a checkpoint."`
	Grace    time.Duration `name:"grace" default:"30s" help:"Time between SIGTERM and SIGKILL when the mount failed."`
	Drain    time.Duration `name:"drain-timeout" default:"5m" help:"How long to wait at the end until what was written is in the object store."`
	LockDir  string        `name:"lock-dir" default:"${lockdir}" hidden:"" help:"Where the locks of GPUs lie."`

	Command []string `arg:"" passthrough:"" help:"The command and its arguments, after --."`
}

// Help gives examples.
func (runCmd) Help() string {
	return `GPUs are chosen among those that are healthy, free and not taken by another pailfs run: the ones nearest to each other (NVLink, PCI Express, NUMA),
then the least busy. The command finds them in CUDA_VISIBLE_DEVICES. Signals are handed on to it.

When the command ends, everything that it wrote to the mount is brought to the object store before this program ends.

Exit codes: the command's own (128 + n if signal n ended it); 74 it succeeded and what it wrote is not all in the object store;
125 it was not run or its mount failed, 126 it may not be run, 127 there is no such command; 2 wrong arguments.

Examples:

	pailfs run --gpus 2 --mount /mnt/data --dataset imagenet/train -- torchrun --nproc-per-node 2 train.py
	pailfs run --gpus 8 --min-free 70GiB --mount /mnt/data --restarts 3 -- python train.py --resume auto
	pailfs run --gpus 0 --mount /mnt/data -- python preprocess.py`
}

// exitNotSaved is EX_IOERR of sysexits.h.
const exitNotSaved = 74

// Run prepares, runs, and drains.
func (c *runCmd) Run(p program) error {
	if err := c.validate(); err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	signals := listen()
	ctx, stop, got := untilSignal(signals)
	environ, m, release, err := c.prepare(ctx, p)
	stop()
	if s := got(); s != nil {
		err = errors.Join(err, fmt.Errorf("%s before the command was started", s))
	}
	if err != nil {
		if release != nil {
			release()
		}
		return &exitError{code: exitNotRun, err: err}
	}
	defer release()
	return c.supervise(p, m, environ, signals)
}

// validate refuses what makes no sense.
func (c *runCmd) validate() error {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	switch {
	case len(c.Command) == 0:
		return errors.New("no command given: put it after --")
	case c.GPUs < 0 || c.Restarts < 0:
		return errors.New("--gpus and --restarts must not be negative")
	case c.Mount == "" && len(c.Datasets) > 0:
		return errors.New("--dataset needs --mount: it names a path in the mount")
	case c.Mount == "" && c.Restarts > 0:
		return errors.New("--restarts needs --mount: it is the mount's failure that it is about")
	}
	for _, d := range c.Datasets {
		if !filepath.IsLocal(d) {
			return fmt.Errorf("--dataset %q is not a path in the mount: want one like imagenet/train", d)
		}
	}
	if _, err := humanize.ParseBytes(c.MinFree); err != nil {
		return fmt.Errorf("--min-free %q is not a size: want one like 40GiB", c.MinFree)
	}
	return nil
}

// prepare waits for the mount and the GPUs, and warms. release gives the GPUs
// back; it is nil if there is nothing to give.
func (c *runCmd) prepare(ctx context.Context, p program) (environ []string, m *mount, release func(), err error) {
	environ = os.Environ()
	if c.Mount != "" {
		if m, err = openMount(p, c.Mount); err != nil {
			return nil, nil, nil, err
		}
		if _, err := m.await(ctx, c.Wait); err != nil {
			return nil, nil, nil, err
		}
	}
	release = func() {}
	if c.GPUs > 0 {
		lease, err := c.acquire(ctx, p)
		if err != nil {
			return nil, nil, nil, err
		}
		release = lease.Release
		environ = append(environ, "CUDA_VISIBLE_DEVICES="+uuids(lease.Devices))
	}
	if !c.NoWait {
		err = c.warm(ctx, m)
	}
	return environ, m, release, err
}

// acquire takes GPUs, and waits for them if need be.
func (c *runCmd) acquire(ctx context.Context, p program) (*gpu.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	monitor := p.monitor()
	defer func() { _ = monitor.Close() }() // the driver needs no goodbye
	minimum, err := humanize.ParseBytes(c.MinFree)
	if err != nil {
		return nil, err
	}
	said := false
	for {
		h := monitor.Read()
		lease, err := gpu.Acquire(c.LockDir, h, gpu.Request{Count: c.GPUs, MinFree: minimum, Shared: c.Shared})
		switch {
		case err == nil:
			fmt.Fprintf(p.stderr, "pailfs: GPUs %s\n", names(lease.Devices))
			return lease, nil
		case !errors.Is(err, gpu.ErrNotEnough), c.GPUs > present(h):
			return nil, err // waiting does not help
		case !said:
			fmt.Fprintf(p.stderr, "pailfs: waiting for GPUs: %v\n", err)
			said = true
		}
		if !sleep(ctx, checkEvery) {
			return nil, fmt.Errorf("waited %s: %w", c.Wait, err)
		}
	}
}

func (c *runCmd) warm(ctx context.Context, m *mount) error {
	for _, d := range c.Datasets {
		if err := m.warm(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// uuids lists devices as CUDA_VISIBLE_DEVICES wants them.
func uuids(devices []gpu.Device) string {
	list := make([]string, len(devices))
	for i, d := range devices {
		list[i] = d.UUID
	}
	return strings.Join(list, ",")
}

// names lists devices for people.
func names(devices []gpu.Device) string {
	list := make([]string, len(devices))
	for i, d := range devices {
		list[i] = fmt.Sprintf("%d (%s)", d.Index, d.Name)
	}
	return strings.Join(list, ", ")
}

// supervise runs the command, again if the mount fails, and drains at the end.
func (c *runCmd) supervise(p program, m *mount, environ []string, signals chan os.Signal) error {
	for failures := 0; ; failures++ {
		code, stopped, err := c.once(p, m, environ, signals)
		switch {
		case errors.Is(err, errKilled) && failures < c.Restarts && !stopped:
			fmt.Fprintf(p.stderr, "pailfs: the mount failed: start %d of %d again\n", failures+1, c.Restarts)
			if _, err := m.await(context.Background(), c.Wait); err != nil {
				return &exitError{code: exitNotRun, err: err}
			}
			continue
		case errors.Is(err, errKilled):
			return &exitError{code: exitNotRun, err: fmt.Errorf("the mount %s failed while the command ran, which then ended with exit code %d", c.Mount, code)}
		case err != nil:
			return err
		}
		return c.finish(p, m, code)
	}
}

// once starts the command and waits for its end.
func (c *runCmd) once(p program, m *mount, environ []string, signals chan os.Signal) (code int, stopped bool, err error) {
	command, err := startChild(c.Command, environ, signals)
	if err != nil {
		return 0, false, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan struct{})
	failed := make(chan struct{})
	go func() {
		defer close(watched)
		c.watch(ctx, p, m, failed)
	}()
	code, err = command.wait(failed, c.Grace)
	cancel()
	<-watched
	return code, command.stopped, err
}

// watch closes failed when the mount has failed twice in a row, and meanwhile
// warms what was not warmed before.
func (c *runCmd) watch(ctx context.Context, p program, m *mount, failed chan<- struct{}) {
	if m == nil {
		return
	}
	warmed := make(chan struct{})
	go func() {
		defer close(warmed)
		if c.NoWait {
			if err := c.warm(ctx, m); err != nil && ctx.Err() == nil {
				report(p.stderr, err)
			}
		}
	}()
	defer func() { <-warmed }()
	for bad := 0; sleep(ctx, checkEvery); {
		_, err := m.check(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			bad = 0
		default:
			if bad++; bad == 2 {
				report(p.stderr, err)
				close(failed)
				return
			}
		}
	}
}

// finish brings what was written to the object store and returns the exit code
// as an error.
func (c *runCmd) finish(p program, m *mount, code int) error {
	if m != nil {
		s, err := m.check(context.Background())
		if err == nil && s.Writing != nil {
			err = m.drain(context.Background(), c.Drain)
		}
		if err != nil {
			report(p.stderr, fmt.Errorf("not all that was written is in the object store: %w; it stays staged on this node", err))
			if code == 0 {
				return &exitError{code: exitNotSaved}
			}
		}
	}
	if code != 0 {
		return &exitError{code: code}
	}
	return nil
}
