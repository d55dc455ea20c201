package ls

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/look"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/terminal"
)

// Cmd is `pailfs ls`.
type Cmd struct {
	Paths   []string        `arg:"" optional:"" name:"path" help:"Show only the mounts at or below these directories."`
	JSON    bool            `name:"json" help:"Print everything as JSON."`
	Timeout config.Duration `name:"timeout" default:"3s" placeholder:"TIME" help:"How long the mounts may take to answer, all at once."`
}

// Help gives examples.
func (Cmd) Help() string {
	return `Shows the mounts of pailfs that this process can see, with their health: ok, degraded (the daemon says what is wrong), dead (the daemon is gone), hung (it does not answer), hidden (another mount lies over it) or unknown (it could not be asked). A mount that hangs is waited for no longer than --timeout. OUTPUT.md says what --json gives.

Exit codes: 0 every mount answers, or there is none; 1 the mounts cannot be listed or one cannot be asked; 2 wrong arguments; 3 a mount is dead or hung.

Examples:

	pailfs ls
	pailfs ls /mnt
	pailfs ls --json | jq '.mounts[] | select(.health != "ok")'`
}

// Run prints the mounts.
func (c *Cmd) Run(p command.Program) error {
	if c.Timeout <= 0 {
		return command.Usage(fmt.Errorf("--timeout %s is no time to wait: write for example 3s", c.Timeout))
	}
	mounts, err := look.List()
	if err != nil {
		return err
	}
	if mounts, err = below(mounts, c.Paths); err != nil {
		return err
	}
	ctx, stop := command.Interruptible()
	defer stop()
	seen := look.All(ctx, mounts, time.Duration(c.Timeout))
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.JSON {
		err = p.PrintJSON(newReport(seen))
	} else {
		err = write(p.Stdout, seen)
	}
	if err != nil {
		return err
	}
	return verdict(seen)
}

// below returns the mounts at or below the paths; all, if none is given.
func below(mounts []look.Mount, paths []string) ([]look.Mount, error) {
	if len(paths) == 0 {
		return mounts, nil
	}
	dirs := make([]string, len(paths))
	for i, path := range paths {
		dir, err := mountpoint.Resolve(path)
		if err != nil {
			return nil, err
		}
		dirs[i] = dir
	}
	return slices.DeleteFunc(mounts, func(m look.Mount) bool {
		return !slices.ContainsFunc(dirs, func(dir string) bool { return mountpoint.Within(dir, m.Path) })
	}), nil
}

// exitUnwell is the exit code where a mount does not answer: that of commands about one whose
// daemon is dead.
const exitUnwell = 3

// verdict returns the error whose exit code says how the mounts do; what is wrong was printed.
func verdict(seen []look.Seen) error {
	code := command.OK
	for _, s := range seen {
		switch s.Health {
		case look.Dead, look.Hung:
			return &command.Error{Code: exitUnwell}
		case look.Unknown:
			code = command.Failed
		case look.OK, look.Degraded, look.Hidden:
		}
	}
	if code == command.OK {
		return nil
	}
	return &command.Error{Code: code}
}

// none stands for what is not known.
const none = "-"

// write writes the mounts for people.
func write(w io.Writer, all []look.Seen) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "SOURCE\tMOUNTPOINT\tMODE\tHEALTH\tPID\tUP\tCACHED\tPENDING\tWHAT IS WRONG")
	for _, s := range all {
		row := newEntry(s)
		pid, up, cached, pending := none, none, none, none
		if s.Status != nil {
			pid, up = strconv.Itoa(row.PID), short(s.Status.Uptime)
			cached = terminal.Size(row.CachedBytes)
			if row.PendingBytes != nil {
				pending = terminal.Size(*row.PendingBytes)
			}
		}
		wrong := none
		if len(s.Reasons) > 0 {
			wrong = s.Reasons[0]
			if more := len(s.Reasons) - 1; more > 0 {
				wrong += fmt.Sprintf(" (and %d more)", more)
			}
		}
		cells := []string{terminal.Name(row.Source), terminal.Name(row.MountPoint), row.Mode, string(s.Health), pid, up, cached, pending, terminal.Text(wrong)}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	return tw.Flush()
}

// short returns a time in seconds with its two greatest units at most: "3d4h", "2h5m", "12s".
func short(seconds float64) string {
	n := int64(seconds)
	units := []struct {
		name string
		size int64
	}{{"d", 86400}, {"h", 3600}, {"m", 60}, {"s", 1}}
	for i, u := range units {
		if n < u.size {
			continue
		}
		text := strconv.FormatInt(n/u.size, 10) + u.name
		if i+1 < len(units) {
			if rest := n % u.size / units[i+1].size; rest > 0 {
				text += strconv.FormatInt(rest, 10) + units[i+1].name
			}
		}
		return text
	}
	return "0s"
}
