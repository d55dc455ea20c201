package mounting

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/machine"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/prefetch/control"
)

const (
	// flushWait is how long one call of flush waits.
	flushWait = 700 * time.Millisecond
	// flushListed bounds how many changes are looked at for an answer.
	flushListed = 10_000
	// flushNamed is how many of them are named.
	flushNamed = 20
)

// rightsPatience is how long the object store may take to tell whether a caller may read a file:
// until then that is not known.
const rightsPatience = 5 * time.Second

// refused returns what is told to a caller who may not read what is at path, or of whom that is not
// known.
func (d *Daemon) refused(ctx context.Context, caller control.Caller, path string) error {
	ctx, cancel := context.WithTimeout(ctx, rightsPatience)
	defer cancel()
	if err := d.loader.rights.Refused(ctx, caller.Who(), path); err != nil {
		return control.Refusal(caller, err)
	}
	return nil
}

// answerFlush is the control method flush.
func (d *Daemon) answerFlush(ctx context.Context, caller control.Caller, params wire.FlushParams) (wire.FlushAnswer, error) {
	path, err := caller.Path(params.Path)
	if err != nil {
		return wire.FlushAnswer{}, err
	}
	// What is not there may have been removed, which is to be published, too.
	if err := d.refused(ctx, caller, path); err != nil {
		return wire.FlushAnswer{}, err
	}
	if d.writing == nil {
		return wire.FlushAnswer{Done: true}, nil
	}
	waiting, cancel := context.WithTimeout(ctx, flushWait)
	defer cancel()
	if params.Begun.IsZero() {
		params.Begun = time.Now()
	}
	err = d.writing.space.FlushSince(waiting, path, params.Begun)
	if err == nil {
		return wire.FlushAnswer{Done: true}, nil
	}
	if ctx.Err() != nil {
		return wire.FlushAnswer{}, ctx.Err()
	}
	due := d.writing.space.Pending(path, flushListed)
	a := wire.FlushAnswer{Begun: params.Begun, Left: len(due), Paths: due[:min(flushNamed, len(due))]}
	for _, p := range due {
		a.Bytes += p.Bytes
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		a.Error = command.OneLine(err)
	}
	if !d.mux.MayOwn(caller) {
		flushForStranger(&a)
	}
	return a, nil
}

// answerAccept is the control method accept: it reads all of a lost file from the disk, and
// takes it back.
func (d *Daemon) answerAccept(ctx context.Context, caller control.Caller, params wire.AcceptParams) (writeback.Remains, error) {
	path, err := caller.Path(params.Path)
	if err != nil {
		return writeback.Remains{}, err
	}
	// What is not there may have been removed, and lost before.
	if err := d.refused(ctx, caller, path); err != nil {
		return writeback.Remains{}, err
	}
	switch {
	case d.writing == nil:
		return writeback.Remains{}, errors.New("the mount cannot be written: nothing of it can be lost")
	case params.Take:
		return d.writing.space.Accept(ctx, path, params.CRC64)
	}
	return d.writing.space.Remains(ctx, path)
}

// answerUmount is the control method umount.
func (d *Daemon) answerUmount(ctx context.Context, c control.Caller, params wire.UmountParams) (wire.UmountAnswer, error) {
	select {
	case <-d.opened:
	case <-ctx.Done():
		return wire.UmountAnswer{}, ctx.Err()
	}
	if !params.Result {
		d.Log.Info("told to unmount", "uid", c.UID, "pid", c.PID, "lazy", params.Lazy, "force", params.Force)
		d.umounts.last.Store(nil)
		select {
		case d.umounts.requests <- params:
		case <-ctx.Done():
			return wire.UmountAnswer{}, ctx.Err()
		}
	}
	ticks, err := machine.StartTicks(os.Getpid())
	if err != nil {
		return wire.UmountAnswer{}, err
	}
	answer := wire.UmountAnswer{MountPoint: d.At, PID: os.Getpid(), StartTicks: ticks}
	if d.writing != nil {
		answer.CacheDir = d.writing.dir
	}
	if last := d.umounts.last.Load(); last != nil {
		state := *last
		if state.Busy {
			state.Users = d.holders(int(c.PID))
		}
		answer.Last = &state
	}
	return answer, nil
}
