package look

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/ask"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/child"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/overview"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/prefetch/control"
)

// Health says in a word how a mount does.
type Health string

// The words.
const (
	// OK: the daemon answers, and nothing is wrong.
	OK Health = overview.OK
	// Degraded: the daemon answers, and says that something is wrong.
	Degraded Health = overview.Degraded
	// Dead: the daemon is gone, and every call fails at once.
	Dead Health = "dead"
	// Hung: the daemon does not answer.
	Hung Health = "hung"
	// Hidden: another mount lies over it.
	Hidden Health = "hidden"
	// Unknown: it could not be asked.
	Unknown Health = "unknown"
)

// Seen is what a look at a mount gave.
type Seen struct {
	Mount
	At     time.Time
	Health Health
	// Reasons say what is wrong, the gravest first.
	Reasons []string
	// Status is what the daemon says; nil where it said nothing.
	Status *wire.Status
	// Left is closed when the process that was left behind at a mount that hangs has ended: until
	// then another look would hang as well. It is nil where none was.
	Left <-chan struct{}
}

// At looks at a mount for as long as ctx lasts.
func At(ctx context.Context, m Mount) Seen {
	seen := Seen{Mount: m, At: time.Now()}
	if m.Hidden {
		seen.Health, seen.Reasons = Hidden, []string{"another mount lies over it"}
		return seen
	}
	var status wire.Status
	err := ask.Call(ctx, m.Path, wire.MethodStatus, nil, &status)
	left, abandoned := errors.AsType[*child.Abandoned](err)
	switch {
	case err == nil:
		seen.Status = &status
		health, reasons := overview.Judge(&status, seen.At)
		seen.Health, seen.Reasons = Health(health), reasons
	case errors.Is(err, control.ErrDaemonGone):
		seen.Health, seen.Reasons = Dead, []string{"the daemon is gone: pailfs umount " + m.Path + " clears the mount"}
	case abandoned:
		seen.Health, seen.Left = Hung, left.Ended
		seen.Reasons = []string{"the daemon does not answer: wait, or end it with pailfs umount --force " + m.Path}
	default:
		seen.Health, seen.Reasons = Unknown, []string{command.OneLine(err)}
	}
	return seen
}

// All looks at the mounts at once, each for as long as patience lasts.
func All(ctx context.Context, mounts []Mount, patience time.Duration) []Seen {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	seen := make([]Seen, len(mounts))
	var looks sync.WaitGroup
	for i, m := range mounts {
		looks.Go(func() { seen[i] = At(ctx, m) })
	}
	looks.Wait()
	return seen
}
