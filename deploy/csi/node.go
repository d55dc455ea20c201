package csi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// NodeConfig configures the service of a node. All but Environ, Mounter, Patience and Deadline is required.
type NodeConfig struct {
	// ID is the node's name.
	ID string
	// Pailfs is the program pailfs.
	Pailfs string
	// RunDir holds what ends with the node's uptime, keys among it: a directory of a tmpfs that the driver sees again
	// when it was started again.
	RunDir string
	// CacheDir is where each volume gets its cache, on a local disk.
	CacheDir string
	// Environ is the environment of the daemons.
	Environ []string
	// Mounter is the socket of the node's mounter, which starts daemons that outlive the driver; without it they are
	// the driver's own processes.
	Mounter string
	// Patience is how long a call waits for another one of the same volume; 0 means 10 seconds.
	Patience time.Duration
	// Deadline bounds what one call does; 0 means 110 seconds, for kubelet asks again after 2 minutes.
	Deadline time.Duration
}

// node is the service of a node.
type node struct {
	spec.UnimplementedNodeServer

	cfg    NodeConfig
	pailfs program
	asking asking
	log    *slog.Logger
}

var _ spec.NodeServer = (*node)(nil)

// openNode makes the directories of the node's service.
func openNode(cfg NodeConfig, log *slog.Logger) (*node, error) {
	if cfg.Patience == 0 {
		cfg.Patience = 10 * time.Second
	}
	if cfg.Deadline == 0 {
		cfg.Deadline = 110 * time.Second
	}
	for _, dir := range []*string{&cfg.RunDir, &cfg.CacheDir} {
		if err := os.MkdirAll(*dir, 0o700); err != nil {
			return nil, fmt.Errorf("make the driver's directory: %w", err)
		}
		path, err := filepath.EvalSymlinks(*dir)
		if err != nil {
			return nil, err
		}
		*dir = path
	}
	if err := os.Chmod(cfg.RunDir, 0o700); err != nil {
		return nil, err
	}
	return &node{cfg: cfg, pailfs: program{cfg.Pailfs, cfg.Environ, cfg.Mounter}, log: log}, nil
}

// with does something with a volume that no other call does anything with. What has begun is brought to its end
// also if the caller goes: he asks again and finds it done.
func (n *node) with(ctx context.Context, id string, create bool, do func(context.Context, *volume) error) error {
	waiting, cancel := context.WithTimeout(ctx, n.cfg.Patience)
	defer cancel()
	v, err := openVolume(waiting, n.cfg.RunDir, id, create)
	if err != nil {
		return err
	}
	defer v.close()
	working, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.cfg.Deadline)
	defer cancel()
	return do(working, v)
}

// NodeStageVolume implements [spec.NodeServer].
func (n *node) NodeStageVolume(ctx context.Context, r *spec.NodeStageVolumeRequest) (*spec.NodeStageVolumeResponse, error) {
	at, err := given(r.GetVolumeId(), "staging target path", r.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	d, keys, err := n.plan(request{r.GetVolumeId(), r.GetVolumeContext(), r.GetVolumeCapability(), r.GetSecrets(), false}, at)
	if err != nil {
		return nil, refuse(codes.InvalidArgument, "%v", err)
	}
	err = n.with(ctx, r.GetVolumeId(), true, func(ctx context.Context, v *volume) error { return n.stage(ctx, v, r.GetVolumeId(), d, keys) })
	return &spec.NodeStageVolumeResponse{}, err
}

// NodeUnstageVolume implements [spec.NodeServer].
func (n *node) NodeUnstageVolume(ctx context.Context, r *spec.NodeUnstageVolumeRequest) (*spec.NodeUnstageVolumeResponse, error) {
	at, err := given(r.GetVolumeId(), "staging target path", r.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	err = n.end(ctx, r.GetVolumeId(), at)
	return &spec.NodeUnstageVolumeResponse{}, err
}

// end unstages a volume. One of which the node knows nothing has ended, unless its cache holds what is not uploaded.
func (n *node) end(ctx context.Context, id, at string) error {
	notes, err := n.notes(id)
	if err != nil {
		return err
	}
	err = n.with(ctx, id, len(notes) > 0, func(ctx context.Context, v *volume) error { return n.unstage(ctx, v, id, at) })
	if errors.Is(err, errNoVolume) {
		return nil
	}
	return err
}

// NodePublishVolume implements [spec.NodeServer].
func (n *node) NodePublishVolume(ctx context.Context, r *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	to, err := given(r.GetVolumeId(), "target path", r.GetTargetPath())
	if err != nil {
		return nil, err
	}
	asked := request{r.GetVolumeId(), r.GetVolumeContext(), r.GetVolumeCapability(), r.GetSecrets(), r.GetVolumeContext()[ephemeralKey] == "true"}
	at := filepath.Join(n.cfg.RunDir, digest(asked.id), "mount")
	if !asked.inline {
		if r.GetVolumeCapability() == nil {
			return nil, refuse(codes.InvalidArgument, "no volume capability is given")
		}
		if r.GetStagingTargetPath() == "" {
			return nil, refuse(codes.FailedPrecondition, "no staging target path is given: stage the volume first")
		}
		if at, err = resolve(r.GetStagingTargetPath()); err != nil {
			return nil, refuse(codes.FailedPrecondition, "staging target path: %v", err)
		}
	}
	d, keys, err := n.plan(asked, at)
	if err != nil && (asked.inline || len(asked.secrets) > 0 || d.At == "") {
		return nil, refuse(codes.InvalidArgument, "%v", err)
	}
	err = n.with(ctx, asked.id, asked.inline, func(ctx context.Context, v *volume) error {
		if asked.inline {
			err = n.stage(ctx, v, asked.id, d, keys)
		} else {
			err = n.staged(ctx, v, asked.id, d, keys)
		}
		if err != nil {
			return err
		}
		return publish(at, to, r.GetReadonly())
	})
	if errors.Is(err, errNoVolume) {
		err = refuse(codes.FailedPrecondition, "the volume is not staged at %s: stage it first", at)
	}
	return &spec.NodePublishVolumeResponse{}, err
}

// NodeUnpublishVolume implements [spec.NodeServer]. It waits for no daemon but that of an inline volume.
func (n *node) NodeUnpublishVolume(ctx context.Context, r *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	to, err := given(r.GetVolumeId(), "target path", r.GetTargetPath())
	if errors.Is(err, os.ErrNotExist) {
		return &spec.NodeUnpublishVolumeResponse{}, nil
	} else if err != nil {
		return nil, err
	}
	err = n.with(ctx, r.GetVolumeId(), false, func(ctx context.Context, v *volume) error {
		if err := unmountAll(to); err != nil {
			return err
		}
		d, err := v.daemon()
		switch {
		case errors.Is(err, errNoVolume):
			return nil
		case err != nil:
			return err
		case d.Inline:
			return n.unstage(ctx, v, r.GetVolumeId(), d.At)
		}
		return nil
	})
	if errors.Is(err, errNoVolume) {
		err = n.unpublishForgotten(ctx, r.GetVolumeId(), to)
	}
	return &spec.NodeUnpublishVolumeResponse{}, err
}

// unpublishForgotten is the end of a pod of which the node does not know the volume. An inline one ends with it.
func (n *node) unpublishForgotten(ctx context.Context, id, to string) error {
	if err := unmountAll(to); err != nil {
		return err
	}
	notes, err := n.notes(id)
	if err != nil || !slices.ContainsFunc(notes, func(c cacheNote) bool { return c.Daemon.Inline }) {
		return err
	}
	return n.end(ctx, id, filepath.Join(n.cfg.RunDir, digest(id), "mount"))
}

// given returns the path of a call as the mount table shows it, if volume and path are given.
func given(id, what, path string) (string, error) {
	switch {
	case id == "":
		return "", refuse(codes.InvalidArgument, "no volume id is given")
	case path == "":
		return "", refuse(codes.InvalidArgument, "no %s is given", what)
	case !filepath.IsAbs(path):
		return "", refuse(codes.InvalidArgument, "%s %q is not absolute", what, path)
	}
	at, err := resolve(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	return at, nil
}

// NodeGetCapabilities implements [spec.NodeServer].
func (n *node) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	reply := &spec.NodeGetCapabilitiesResponse{}
	for _, c := range []spec.NodeServiceCapability_RPC_Type{
		spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		spec.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP,
		spec.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
	} {
		reply.Capabilities = append(reply.Capabilities, &spec.NodeServiceCapability{
			Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: c}},
		})
	}
	return reply, nil
}

// NodeGetInfo implements [spec.NodeServer].
func (n *node) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	return &spec.NodeGetInfoResponse{NodeId: n.cfg.ID}, nil
}
