package csi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// find returns how the daemon of a volume was started, without waiting for calls that hold it.
func (n *node) find(id string) (daemon, error) {
	v := &volume{dir: filepath.Join(n.cfg.RunDir, digest(id))}
	d, err := v.daemon()
	if errors.Is(err, errNoVolume) {
		return d, refuse(codes.NotFound, "the volume %q is not on this node", id)
	}
	return d, err
}

// NodeGetVolumeStats implements [spec.NodeServer]. A bucket has no size: what is told is the room for what was
// written and waits for its upload.
func (n *node) NodeGetVolumeStats(ctx context.Context, r *spec.NodeGetVolumeStatsRequest) (*spec.NodeGetVolumeStatsResponse, error) {
	if r.GetVolumeId() == "" || r.GetVolumePath() == "" {
		return nil, refuse(codes.InvalidArgument, "no volume id or no volume path is given")
	}
	d, err := n.find(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	path, err := resolve(r.GetVolumePath())
	if err != nil {
		return nil, refuse(codes.NotFound, "volume path: %v", err)
	}
	t, err := readMounts()
	if err != nil {
		return nil, err
	}
	m, staged := t.at(path), t.at(d.At)
	if m == nil || m.FSType != fsType || path != d.At && staged != nil && !sameMount(m, staged) && m.Source != staged.Source {
		return nil, refuse(codes.NotFound, "the volume %q is not mounted at %s", r.GetVolumeId(), path)
	}
	st, s, err := n.look(ctx, path)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, refuse(codes.Unavailable, "%s", problems(path, st, nil)[0].message)
	}
	var room unix.Statfs_t
	if err := statfs(path, &room); err != nil {
		return nil, err
	}
	unit := room.Bsize
	return &spec.NodeGetVolumeStatsResponse{Usage: []*spec.VolumeUsage{{
		Unit: spec.VolumeUsage_BYTES, Total: int64(room.Blocks) * unit, Available: int64(room.Bavail) * unit, Used: int64(room.Blocks-room.Bfree) * unit,
	}}}, nil
}

// statfs asks a mount that answered a moment ago, and does not wait for one that hangs since.
func statfs(path string, st *unix.Statfs_t) error {
	type result struct {
		st  unix.Statfs_t
		err error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		for r.err = unix.Statfs(path, &r.st); errors.Is(r.err, unix.EINTR); {
			r.err = unix.Statfs(path, &r.st)
		}
		done <- r
	}()
	timer := time.NewTimer(statusPatience)
	defer timer.Stop()
	select {
	case r := <-done:
		*st = r.st
		if r.err != nil {
			return fmt.Errorf("statfs %s: %w", path, r.err)
		}
		return nil
	case <-timer.C:
		return errStuck
	}
}

// NodeGetVolumeHealth implements [spec.NodeServer].
func (n *node) NodeGetVolumeHealth(ctx context.Context, r *spec.NodeGetVolumeHealthRequest) (*spec.NodeGetVolumeHealthResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, refuse(codes.InvalidArgument, "no volume id is given")
	}
	d, err := n.find(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	t, err := readMounts()
	if err != nil {
		return nil, err
	}
	st, s := absent, (*status)(nil)
	if t.at(d.At) != nil {
		if st, s, err = n.look(ctx, d.At); err != nil {
			return nil, err
		}
	}
	health := &spec.VolumeHealth{VolumeId: r.GetVolumeId()}
	for _, p := range problems(d.At, st, s) {
		health.HealthStatuses = append(health.HealthStatuses, &spec.VolumeHealth_VolumeHealthEntry{Status: p.kind, Reason: p.reason, Message: p.message})
	}
	return &spec.NodeGetVolumeHealthResponse{VolumeHealth: health}, nil
}
