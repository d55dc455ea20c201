package csi

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/pailfs/pailfs/oss"
)

// controller is the service that provisions.
type controller struct {
	spec.UnimplementedControllerServer

	pailfs program
	mu     struct {
		sync.Mutex
		// busy are the volumes, by where their markers are, for which a call goes on.
		busy map[string]bool
	}
}

var _ spec.ControllerServer = (*controller)(nil)

func newController(cfg ControllerConfig) *controller {
	c := &controller{pailfs: program{path: cfg.Pailfs}}
	c.mu.busy = map[string]bool{}
	return c
}

// with does something with a volume that no other call does anything with.
func (c *controller) with(p place, secret map[string]string, do func(*provisioner) error) error {
	key := p.Endpoint + " " + p.source()
	c.mu.Lock()
	held := c.mu.busy[key]
	c.mu.busy[key] = true
	c.mu.Unlock()
	if held {
		return errPending
	}
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.mu.busy, key)
	}()
	v, err := openProvisioner(p, secret)
	if err != nil {
		return refuse(codes.InvalidArgument, "%v", err)
	}
	defer v.close()
	err = do(v)
	switch {
	case errors.Is(err, oss.ErrAccessDenied):
		return refuse(codes.PermissionDenied, "%v", err)
	case errors.Is(err, oss.ErrUnavailable):
		return refuse(codes.Unavailable, "%v", err)
	case errors.Is(err, errOccupied):
		return refuse(codes.AlreadyExists, "%v", err)
	}
	return err
}

// CreateVolume implements [spec.ControllerServer].
func (c *controller) CreateVolume(ctx context.Context, r *spec.CreateVolumeRequest) (*spec.CreateVolumeResponse, error) {
	if r.GetName() == "" {
		return nil, refuse(codes.InvalidArgument, "no name is given")
	}
	if r.GetVolumeContentSource() != nil {
		return nil, refuse(codes.InvalidArgument, "a volume cannot be made of another one or of a snapshot")
	}
	if err := c.check(ctx, r.GetVolumeCapabilities()); err != nil {
		return nil, err
	}
	a, err := parseAttributes(r.GetParameters(), attrOnDelete)
	if err != nil {
		return nil, refuse(codes.InvalidArgument, "%v", err)
	}
	required, limit := r.GetCapacityRange().GetRequiredBytes(), r.GetCapacityRange().GetLimitBytes()
	if required < 0 || limit < 0 || limit > 0 && required > limit {
		return nil, refuse(codes.OutOfRange, "capacity of %d bytes, and at most %d, cannot be", required, limit)
	}
	p := placeOf(a, r.GetName())
	id, err := p.id()
	if err != nil {
		return nil, refuse(codes.InvalidArgument, "%v", err)
	}
	want := marker{Version: markerVersion, Name: r.GetName(), Prefix: p.prefix(), OnDelete: a.OnDelete, Credentials: a.Credentials, Capacity: required}
	err = c.with(p, r.GetSecrets(), func(v *provisioner) error {
		there, err := v.create(ctx, p, want)
		if err != nil {
			return err
		}
		if there.Name != want.Name || there.OnDelete != want.OnDelete || there.Credentials != want.Credentials ||
			there.Capacity < required || limit > 0 && there.Capacity > limit {
			return refuse(codes.AlreadyExists, "the volume %s is there, and otherwise: of %d bytes, with %s %s and credentials %s", there.Name, there.Capacity, attrOnDelete, there.OnDelete, there.Credentials)
		}
		want = *there
		return nil
	})
	if err != nil {
		return nil, err
	}
	volume := &spec.Volume{VolumeId: id, CapacityBytes: want.Capacity, VolumeContext: map[string]string{
		attrSource: p.source(), attrEndpoint: a.Endpoint, attrCredentials: a.Credentials,
	}}
	if a.Region != "" {
		volume.VolumeContext[attrRegion] = a.Region
	}
	return &spec.CreateVolumeResponse{Volume: volume}, nil
}

// check refuses capabilities that no volume has.
func (c *controller) check(ctx context.Context, capabilities []*spec.VolumeCapability) error {
	if len(capabilities) == 0 {
		return refuse(codes.InvalidArgument, "no volume capabilities are given")
	}
	for _, capability := range capabilities {
		set, err := optionsOf(capability, nil)
		if err != nil {
			return refuse(codes.InvalidArgument, "%v", err)
		}
		args := []string{"config"}
		for _, name := range slices.Sorted(maps.Keys(set)) {
			args = append(args, flag(name, set[name]))
		}
		if _, err := c.pailfs.run(ctx, nil, args...); err != nil {
			return err
		}
	}
	return nil
}

// DeleteVolume implements [spec.ControllerServer]. What the driver did not provision is let alone.
func (c *controller) DeleteVolume(ctx context.Context, r *spec.DeleteVolumeRequest) (*spec.DeleteVolumeResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, refuse(codes.InvalidArgument, "no volume id is given")
	}
	p, err := parseID(r.GetVolumeId())
	if err != nil {
		return &spec.DeleteVolumeResponse{}, nil
	}
	return &spec.DeleteVolumeResponse{}, c.with(p, r.GetSecrets(), func(v *provisioner) error { return v.remove(ctx, p) })
}

// ValidateVolumeCapabilities implements [spec.ControllerServer].
func (c *controller) ValidateVolumeCapabilities(ctx context.Context, r *spec.ValidateVolumeCapabilitiesRequest) (*spec.ValidateVolumeCapabilitiesResponse, error) {
	if r.GetVolumeId() == "" || len(r.GetVolumeCapabilities()) == 0 {
		return nil, refuse(codes.InvalidArgument, "no volume id or no volume capabilities are given")
	}
	p, err := parseID(r.GetVolumeId())
	if err != nil {
		return nil, refuse(codes.NotFound, "the volume %q: %v", r.GetVolumeId(), err)
	}
	err = c.with(p, r.GetSecrets(), func(v *provisioner) error {
		m, err := v.read(ctx, p)
		if err == nil && m == nil {
			return refuse(codes.NotFound, "the volume %q is not there", r.GetVolumeId())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := c.check(ctx, r.GetVolumeCapabilities()); err != nil {
		return &spec.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
	}
	return &spec.ValidateVolumeCapabilitiesResponse{Confirmed: &spec.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: r.GetVolumeContext(), VolumeCapabilities: r.GetVolumeCapabilities(), Parameters: r.GetParameters(),
	}}, nil
}

// ControllerGetCapabilities implements [spec.ControllerServer].
func (c *controller) ControllerGetCapabilities(context.Context, *spec.ControllerGetCapabilitiesRequest) (*spec.ControllerGetCapabilitiesResponse, error) {
	return &spec.ControllerGetCapabilitiesResponse{Capabilities: []*spec.ControllerServiceCapability{{
		Type: &spec.ControllerServiceCapability_Rpc{Rpc: &spec.ControllerServiceCapability_RPC{Type: spec.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME}},
	}}}, nil
}
