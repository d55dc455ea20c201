package mounting

import (
	"context"
	"os"
	"syscall"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	pailfs "github.com/pailfs/pailfs/fs"
	"github.com/pailfs/pailfs/prefetch/control"
)

// openControl makes the control channel and registers what this program answers.
func (d *Daemon) openControl(context.Context) error {
	cfg := control.MuxConfig{
		OwnerUID:  uint32(os.Geteuid()),
		Trusted:   callerNamespace,
		ProcessOf: pailfs.ProcessOf,
		Version:   d.Version,
		Ledger:    d.loader.ledger,
	}
	if d.audit != nil {
		cfg.Called = d.called
	}
	d.mux = control.NewMux(cfg, d.registry, d.Log.Logger)
	control.Handle(d.mux, wire.MethodStatus, control.Anyone, d.answerStatus)
	control.Handle(d.mux, wire.MethodFlush, control.Anyone, d.answerFlush)
	control.Handle(d.mux, wire.MethodDrain, control.Owner, d.answerDrain)
	control.Handle(d.mux, wire.MethodAccept, control.Owner, d.answerAccept)
	control.Handle(d.mux, wire.MethodPage, control.Owner, d.answerPage)
	control.Handle(d.mux, wire.MethodUmount, control.Owner, d.answerUmount)
	control.HandleLoader(d.mux, d.loader.prefetch)
	return nil
}

// controlAdapter makes the mux what fs wants; neither package knows the other.
type controlAdapter struct{ mux *control.Mux }

var _ pailfs.Control = controlAdapter{}

// ServeControl implements [pailfs.Control].
func (a controlAdapter) ServeControl(ctx context.Context, caller pailfs.Caller, cmd uint32, input, output []byte) (int32, syscall.Errno) {
	return a.mux.ServeControl(ctx, control.Caller{UID: caller.UID, GID: caller.GID, TID: caller.TID, Dir: caller.Dir, DirID: caller.DirID, Handle: caller.Handle}, cmd, input, output)
}

// Released implements [pailfs.Control].
func (a controlAdapter) Released(handle uint64) { a.mux.Released(handle) }
