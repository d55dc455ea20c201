package mounting

import (
	"fmt"
	"os"

	pailfs "github.com/pailfs/pailfs/fs"
	"github.com/pailfs/pailfs/fs/writeback"
)

// openMount mounts. The mount is not among the parts: it is taken away by run, or
// by anybody else, before the parts are closed.
func (d *Daemon) openMount() error {
	c := &d.Settings.Config
	var space *writeback.Space
	if d.writing != nil {
		space = d.writing.space
	}
	mount, err := pailfs.Mount(pailfs.Config{
		Space:       space,
		Attrs:       d.names.attrs,
		Mountpoint:  d.At,
		Source:      d.Source.String(),
		Immutable:   c.Immutable || d.names.frozen(),
		Changes:     d.names.changes(),
		NoOpen:      choice(c.NoOpen),
		MeanSize:    d.meanSize(),
		Passthrough: choice(c.Passthrough),
		AllowOther:  c.AllowOther,
		UID:         c.UID.Or(os.Geteuid()),
		GID:         c.GID.Or(os.Getegid()),
		FileMode:    0o666 &^ uint32(c.Umask),
		DirMode:     0o777 &^ uint32(c.Umask),
		Control:     controlAdapter{d.mux},
		Audit:       d.auditor(),
	}, d.names.shown, d.cache, d.registry, d.Log.Logger)
	if err != nil {
		return fmt.Errorf("mount %s at %s: %w", d.Source, d.At, err)
	}
	d.mount = mount
	d.opens("control channel", func() error {
		if d.audit != nil {
			d.audit.End() // calls that still wait for room would hold up the mux
		}
		return d.mux.Close()
	})
	return nil
}

// choice translates a setting that was validated.
func choice(s string) pailfs.Choice {
	switch s {
	case "on":
		return pailfs.On
	case "off":
		return pailfs.Off
	default:
		return pailfs.Auto
	}
}
