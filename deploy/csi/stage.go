package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/codes"
)

// stage brings about that the mount of a volume answers at d.At. A dead one is replaced.
func (n *node) stage(ctx context.Context, v *volume, id string, d daemon, keys []byte) error {
	t, err := readMounts()
	if err != nil {
		return err
	}
	before, err := v.daemon()
	noted := err == nil
	if err != nil && !errors.Is(err, errNoVolume) {
		return err
	}
	m := t.at(d.At)
	switch {
	case m != nil && m.FSType != fsType:
		return refuse(codes.FailedPrecondition, "%s is a mount of type %s, not of pailfs: unmount it", d.At, m.FSType)
	case noted && before.At != d.At && t.at(before.At) != nil:
		return refuse(codes.FailedPrecondition, "the volume is staged at %s: unstage it there first", before.At)
	case m != nil:
		st, _, err := n.look(ctx, d.At)
		switch {
		case err != nil:
			return err
		case st == stuck:
			return stuckAt(d.At)
		case st == alive && !noted:
			return refuse(codes.AlreadyExists, "%s is a mount of pailfs that the driver did not make: unmount it", d.At)
		case st == alive:
			if other := before.difference(d); other != "" {
				return refuse(codes.AlreadyExists, "the volume is staged at %s with other settings (%s): unstage it first", d.At, other)
			}
			return v.noteKeys(keys)
		}
	}
	var last *daemon
	if noted {
		last = &before
	}
	if err := n.elsewhere(ctx, id, d, last); err != nil {
		if !noted {
			return withForgotten(err, v)
		}
		return err
	}
	if err := errors.Join(noteCache(id, d), v.note(d, keys)); err != nil {
		return err
	}
	err = n.pailfs.mount(ctx, v, d)
	if err != nil && m == nil {
		// The orchestrator takes the volume for not staged and may not ask to unstage it.
		if t, terr := readMounts(); terr == nil && t.at(d.At) == nil {
			return withForgotten(err, v)
		}
	}
	return err
}

// withForgotten returns err after the volume was forgotten.
func withForgotten(err error, v *volume) error {
	if ferr := v.forget(); ferr != nil {
		return fmt.Errorf("%w; and %w", err, ferr)
	}
	return err
}

// staged brings about that the mount of a volume that was staged answers, and gives it new keys, if there are any.
func (n *node) staged(ctx context.Context, v *volume, id string, asked daemon, keys []byte) error {
	d, err := v.daemon()
	if err != nil {
		return err
	}
	if d.At != asked.At {
		return refuse(codes.FailedPrecondition, "the volume is staged at %s and not at %s", d.At, asked.At)
	}
	if other := d.difference(asked); other != "" {
		return refuse(codes.FailedPrecondition, "the volume is staged on this node with other settings (%s); all its pods on a node share one mount, and so one fsGroup", other)
	}
	return n.stage(ctx, v, id, d, keys)
}

func stuckAt(at string) error {
	return refuse(codes.Unavailable, "the daemon of the volume at %s does not answer: wait, or end it with pailfs umount --force %s on the node", at, at)
}

// unstage brings about that what was written is in the object store, that nothing is mounted at the directory and that
// nothing is left of the volume but its cache.
func (n *node) unstage(ctx context.Context, v *volume, id, at string) error {
	d, err := v.daemon()
	switch {
	case errors.Is(err, errNoVolume):
		if err := n.drain(ctx, v, daemon{At: at}); err != nil {
			return err
		}
		err = n.recover(ctx, v, id, at)
	case err != nil:
		return err
	case d.At != at:
		return nil // it is staged elsewhere
	default:
		if err = n.drain(ctx, v, d); err == nil {
			err = n.settle(ctx, id, d)
		}
	}
	if err != nil {
		return err
	}
	return v.forget()
}

// drain brings about that nothing is mounted where a daemon is noted to be, and that what it was given is in the object
// store.
func (n *node) drain(ctx context.Context, v *volume, d daemon) error {
	at := d.At
	for {
		t, err := readMounts()
		if err != nil {
			return err
		}
		m, st := t.at(at), absent
		if m != nil {
			if m.FSType != fsType {
				return refuse(codes.FailedPrecondition, "%s is a mount of type %s, not of pailfs: unmount it", at, m.FSType)
			}
			if others := t.elsewhere(m); len(others) > 0 {
				return refuse(codes.FailedPrecondition, "the volume is still published at %s: unpublish it first", strings.Join(others, ", "))
			}
			if st, _, err = n.look(ctx, at); err != nil {
				return err
			}
		}
		switch st {
		case stuck:
			return stuckAt(at)
		case alive:
			if err := n.umount(ctx, v, at); err != nil {
				return err
			}
			continue
		}
		left, err := n.left(ctx, d)
		switch {
		case err != nil:
			return err
		case left:
			// The daemon died before all was uploaded. Another one does that.
			if err := n.pailfs.mount(ctx, v, d); err != nil {
				return refuse(codes.Unavailable, "what was written to the volume is not all in the object store, and stays in %s: %v", d.CacheDir, err)
			}
		case st == dead:
			if err := n.umount(ctx, v, at); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// umount ends the daemon at path when everything that was written is in the object store.
func (n *node) umount(ctx context.Context, v *volume, at string) error {
	_, err := n.pailfs.run(ctx, v, "umount", flag("timeout", (n.cfg.Deadline*9/10).String()), at)
	if failed, ok := errors.AsType[*commandError](err); ok {
		return refuse(codes.Unavailable, "%s", failed.text)
	}
	return err
}

// stagingName is where a mount that is written keeps what is not in the object store, below its cache directory.
const stagingName = "staging"

// left reports whether a daemon that has ended left something that is not in the object store and that another one would
// upload.
func (n *node) left(ctx context.Context, d daemon) (bool, error) {
	due, _, err := n.inspect(ctx, d)
	return due, err
}

// inspect reports whether a daemon that has ended left something that is due to be uploaded, and something that only
// people can judge: what a loss of power or damage took a part of.
func (n *node) inspect(ctx context.Context, d daemon) (due, remains bool, err error) {
	if d.CacheDir == "" {
		return false, false, nil
	}
	// A mount that is only read has no such directory.
	if _, err := os.Stat(filepath.Join(d.CacheDir, stagingName)); errors.Is(err, os.ErrNotExist) {
		return false, false, nil
	} else if err != nil {
		return false, false, err
	}
	out, err := n.pailfs.run(ctx, nil, "staged", "ls", "--json", flag("cache-dir", d.CacheDir))
	if err != nil {
		return false, false, err
	}
	var staged struct {
		Pending    []json.RawMessage `json:"pending"`
		Suspects   []json.RawMessage `json:"suspects"`
		Unfinished []json.RawMessage `json:"unfinished"`
		TornBytes  int64             `json:"torn_bytes"`
		SetAside   []string          `json:"set_aside"`
	}
	if err := json.Unmarshal(out, &staged); err != nil {
		return false, false, fmt.Errorf("read what is staged in %s: %w", d.CacheDir, err)
	}
	return len(staged.Pending) > 0, len(staged.Suspects)+len(staged.Unfinished)+len(staged.SetAside) > 0 || staged.TornBytes > 0, nil
}
