package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/deploy/gpu"
)

// gpuCmd is `pailfs gpu`.
type gpuCmd struct {
	JSON     bool          `name:"json" help:"Print everything as JSON; with --watch one line a reading."`
	Watch    bool          `name:"watch" help:"Read again and again, and listen for the driver's errors (XIDs), until interrupted."`
	Interval time.Duration `name:"interval" default:"5s" help:"Time between readings with --watch; at least 1s."`
}

// Help gives examples.
func (gpuCmd) Help() string {
	return `A GPU is Healthy, Degraded (it works, slower or not for long), Unknown (it could not be asked) or Unhealthy, with the reasons. A verdict
recovers when its evidence is gone: after an XID when a minute has passed and three readings in a row found nothing wrong.

Exit codes: 0 all GPUs are Healthy or Degraded, 1 one is not, 2 wrong arguments, 3 there is no driver or no GPU.

Examples:

	pailfs gpu
	pailfs gpu --json | jq '.devices[] | select(.health.state != "Healthy")'
	pailfs gpu --watch --json >> gpu.log`
}

const exitNoGPU = 3

// Run reads once, or until it is interrupted.
func (c *gpuCmd) Run(p program) error {
	if c.Interval < time.Second {
		return command.Usage(fmt.Errorf("--interval %s is too short: want 1s or more", c.Interval))
	}
	ctx, stop := command.Interruptible()
	defer stop()
	d := p.driver()
	if !c.Watch {
		h := d.read(ctx)
		return errors.Join(c.print(p.Stdout, h), d.close(), verdictError(h))
	}
	again := make(chan struct{}, 1)
	listening := make(chan error, 1)
	go func() {
		listening <- d.monitor.Run(ctx, func(string, gpu.XID) {
			select {
			case again <- struct{}{}:
			default:
			}
		})
	}()
	var err error
	for ctx.Err() == nil && err == nil {
		err = c.print(p.Stdout, d.read(ctx))
		select {
		case <-ctx.Done():
		case <-again:
		case <-time.After(c.Interval):
		}
	}
	stop()
	if d.stuck() {
		return err // whoever listens waits for the driver as well
	}
	if lerr := <-listening; !errors.Is(lerr, context.Canceled) {
		err = errors.Join(err, lerr)
	}
	return errors.Join(err, d.close())
}

// verdictError turns a verdict into the exit code.
func verdictError(h gpu.Host) error {
	switch {
	case len(h.Devices) == 0 && !slices.ContainsFunc(h.Health.Reasons, func(r gpu.Reason) bool { return r.Code == codeStuck }):
		return &command.Error{Code: exitNoGPU}
	case h.Health.State == gpu.Healthy || h.Health.State == gpu.Degraded:
		return nil
	}
	return &command.Error{Code: command.Failed}
}

// print writes a reading.
func (c *gpuCmd) print(w io.Writer, h gpu.Host) error {
	if c.JSON {
		e := json.NewEncoder(w)
		if !c.Watch {
			e.SetIndent("", "  ")
		}
		return e.Encode(h)
	}
	return table(w, h)
}

// table writes a reading for people.
func table(w io.Writer, h gpu.Host) error {
	if h.Driver != "" {
		fmt.Fprintf(w, "driver %s, CUDA %s, %d of %d GPUs, %s\n", h.Driver, h.CUDA, present(h), h.Expected, h.Health.State)
	} else {
		fmt.Fprintf(w, "%s\n", h.Health.State)
	}
	if len(h.Devices) == 0 {
		reasons(w, "", h.Health)
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "GPU\tmodel\tmemory used\tbusy\ttemp\tpower\thealth\tuuid")
	for _, d := range h.Devices {
		index := "-"
		if d.Index >= 0 {
			index = fmt.Sprint(d.Index)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s of %s\t%d %%\t%d °C\t%d W\t%s\t%s\n", index, d.Name, humanize.IBytes(d.Memory.Used), humanize.IBytes(d.Memory.Total),
			d.Utilization, d.Temperature, d.Power.Draw/1000, d.Health.State, d.UUID)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, d := range h.Devices {
		for _, i := range d.MIG.Instances {
			fmt.Fprintf(w, "  GPU %d: MIG instance %d, %s, %s of %s used, %d processes, %s\n", d.Index, i.GPU, i.Profile(),
				humanize.IBytes(i.Memory.Used), humanize.IBytes(i.Memory.Total), len(i.Processes), i.UUID)
		}
		for _, p := range d.Processes {
			reads := "no pailfs mount"
			if len(p.Mounts) > 0 {
				reads = strings.Join(p.Mounts, ", ")
			}
			fmt.Fprintf(w, "  GPU %d: process %d %s, %s, uses %s\n", d.Index, p.PID, p.Name, humanize.IBytes(p.Memory), reads)
		}
	}
	reasons(w, "  ", h.Health)
	return nil
}

// present counts the devices that the driver lists.
func present(h gpu.Host) int {
	n := 0
	for _, d := range h.Devices {
		if d.Index >= 0 {
			n++
		}
	}
	return n
}

// reasons writes what a verdict is founded on.
func reasons(w io.Writer, indent string, v gpu.Verdict) {
	for _, r := range v.Reasons {
		fmt.Fprintf(w, "%s%s: %s: %s\n", indent, r.State, r.Code, r.Message)
	}
}
