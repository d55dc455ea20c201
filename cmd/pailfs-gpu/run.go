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

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/deploy/gpu"
	"github.com/pailfs/pailfs/deploy/pause"
)

// runCmd is `pailfs run`.
type runCmd struct {
	GPUs     int           `name:"gpus" default:"1" help:"How many GPUs; 0 runs without choosing any."`
	MinFree  string        `name:"min-free" default:"0" placeholder:"SIZE" help:"Free memory that each GPU must have, such as 40GiB."`
	MIG      string        `name:"mig" placeholder:"PROFILE" help:"Instances of divided GPUs, of a profile such as 1g.10gb, or any; where all GPUs are divided, any unless given."`
	Shared   bool          `name:"shared" help:"Also use GPUs on which something runs."`
	Mount    string        `name:"mount" placeholder:"DIR" help:"A pailfs mount that must be healthy, and stay so."`
	Datasets []string      `name:"dataset" placeholder:"PATH" help:"File or folder in the mount that is brought to the cache first; may be given more than once."`
	NoWait   bool          `name:"start-cold" help:"Start at once, and bring datasets to the cache meanwhile."`
	Wait     time.Duration `name:"wait" default:"10m" help:"How long to wait for the mount, and for GPUs."`
	Restarts int           `name:"restarts" default:"0" placeholder:"N" help:"Start the command again after its mount failed, up to N times; it must resume from a checkpoint."`
	Grace    time.Duration `name:"grace" default:"30s" help:"Time between SIGTERM and SIGKILL when the mount failed, or the machine goes, and for what the command leaves running."`
	Notice   string        `name:"notice-signal" default:"TERM" placeholder:"SIGNAL" help:"What the command gets as soon as the machine is about to go; none tells it nothing yet."`
	Upload   time.Duration `name:"upload-time" default:"1m" help:"How long before the machine goes the command must have ended, so that what it wrote can be uploaded; at most half of the time."`
	Drain    time.Duration `name:"drain-timeout" default:"5m" help:"How long to wait at the end until what was written is in the object store."`
	Check    time.Duration `name:"check-patience" default:"15s" hidden:"" help:"How long the mount's daemon may take to answer."`
	Linger   time.Duration `name:"linger" default:"1m" hidden:"" help:"How long a command that was killed may take to end: its memory is to be freed."`
	LockDir  string        `name:"lock-dir" default:"${lockdir}" hidden:"" help:"Where the locks of GPUs lie."`

	Command []string `arg:"" passthrough:"" help:"The command and its arguments, after --."`
}

// Help gives examples.
func (runCmd) Help() string {
	return `GPUs are chosen among those that are healthy, free and not taken by another pailfs run: the ones nearest to each other (NVLink, PCI Express, NUMA),
then the least busy. The command finds them in CUDA_VISIBLE_DEVICES. Of GPUs that are divided by MIG instances are chosen, the
smallest that do; a process of CUDA uses one instance, whatever it is shown.

Signals (TERM, INT, HUP, QUIT, USR1, USR2) are handed on to the command alone, which tells its own children; Ctrl-C reaches all of them from the terminal. What
the command leaves running when it ends, also in the background, gets SIGTERM then, and SIGKILL after --grace; the exit code stays the command's. So of
"sh -c 'python train.py; echo done'" the trainer gets SIGTERM when the shell has ended by it; with exec, or without a shell, it does at once.

When all that has ended, everything that the command wrote to the mount is brought to the object store before this program ends. When the mount learns that the machine
is about to go (pailfs mount --spot-notice, pailfs drain, SIGUSR1 to its daemon), the command gets --notice-signal at once, SIGTERM when its time is
nearly over, SIGKILL when --upload-time is left, and what it wrote is uploaded before the deadline.

Exit codes: the command's own (128 + n if signal n ended it); 74 it succeeded and what it wrote is not all in the object store;
125 it was not run or its mount failed, 126 it may not be run, 127 there is no such command; 2 wrong arguments.

Examples:

	pailfs run --gpus 2 --mount /mnt/data --dataset imagenet/train -- torchrun --nproc-per-node 2 train.py
	pailfs run --gpus 8 --min-free 70GiB --mount /mnt/data --restarts 3 -- python train.py --resume auto
	pailfs run --mount /mnt/data --notice-signal USR1 -- python train.py    # it saves a checkpoint and goes on
	pailfs run --mig 1g.10gb -- python serve.py
	pailfs run --gpus 0 --mount /mnt/data -- python preprocess.py`
}

// exitNotSaved is EX_IOERR of sysexits.h.
const exitNotSaved = 74

// Run prepares, runs, and drains.
func (c *runCmd) Run(p program) error {
	if err := c.validate(); err != nil {
		return command.Usage(err)
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
		return &command.Error{Code: exitNotRun, Err: err}
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
	if _, err := parseSignal(c.Notice); err != nil {
		return fmt.Errorf("--notice-signal: %w", err)
	}
	if c.Grace < 0 || c.Upload < 0 {
		return errors.New("--grace and --upload-time must not be negative")
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
		if m, err = openMount(p, c.Mount, c.Check); err != nil {
			return nil, nil, nil, err
		}
		if err := m.await(ctx, c.Wait); err != nil {
			return nil, nil, nil, err
		}
		parent := ctx
		var stop func()
		ctx, stop = m.untilNotice(parent)
		defer func() {
			if parent.Err() == nil && ctx.Err() != nil {
				err = context.Cause(ctx) // whatever else was interrupted by it
			}
			stop()
		}()
	}
	release = func() {}
	if c.GPUs > 0 {
		lease, err := c.acquire(ctx, p)
		if err != nil {
			return nil, nil, nil, err
		}
		release = lease.Release
		environ = append(environ, "CUDA_VISIBLE_DEVICES="+ids(lease.Chosen))
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
	driver := p.driver()
	defer func() { _ = driver.close() }() // the driver needs no goodbye
	minimum, err := humanize.ParseBytes(c.MinFree)
	if err != nil {
		return nil, err
	}
	said := false
	for {
		h := driver.read(ctx)
		lease, err := gpu.Acquire(c.LockDir, h, gpu.Request{Count: c.GPUs, MinFree: minimum, Shared: c.Shared, MIG: c.MIG})
		switch {
		case err == nil:
			fmt.Fprintf(p.Stderr, "pailfs: GPUs %s\n", names(lease.Chosen))
			return lease, nil
		case !errors.Is(err, gpu.ErrNotEnough), errors.Is(err, gpu.ErrTooFew):
			return nil, err // waiting does not help
		case !said:
			fmt.Fprintf(p.Stderr, "pailfs: waiting for GPUs: %v\n", err)
			said = true
		}
		if !pause.For(ctx, checkEvery) {
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

// ids lists GPUs as CUDA_VISIBLE_DEVICES wants them.
func ids(chosen []gpu.Chosen) string {
	list := make([]string, len(chosen))
	for i, c := range chosen {
		list[i] = c.ID()
	}
	return strings.Join(list, ",")
}

// names lists GPUs for people.
func names(chosen []gpu.Chosen) string {
	list := make([]string, len(chosen))
	for i, c := range chosen {
		list[i] = c.String()
	}
	return strings.Join(list, ", ")
}
