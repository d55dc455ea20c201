package csi

import (
	"context"
	"errors"
	"fmt"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// identity says who the driver is.
type identity struct {
	spec.UnimplementedIdentityServer

	version string
}

var _ spec.IdentityServer = (*identity)(nil)

// GetPluginInfo implements [spec.IdentityServer].
func (i *identity) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: Name, VendorVersion: i.version}, nil
}

// GetPluginCapabilities implements [spec.IdentityServer]. Node and controller say the same.
func (i *identity) GetPluginCapabilities(context.Context, *spec.GetPluginCapabilitiesRequest) (*spec.GetPluginCapabilitiesResponse, error) {
	return &spec.GetPluginCapabilitiesResponse{Capabilities: []*spec.PluginCapability{{
		Type: &spec.PluginCapability_Service_{Service: &spec.PluginCapability_Service{Type: spec.PluginCapability_Service_CONTROLLER_SERVICE}},
	}}}, nil
}

// Probe implements [spec.IdentityServer].
func (i *identity) Probe(context.Context, *spec.ProbeRequest) (*spec.ProbeResponse, error) {
	return &spec.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// Probe asks the driver that listens on a unix socket whether it answers.
func Probe(ctx context.Context, socket string) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	_, err = spec.NewIdentityClient(conn).Probe(ctx, &spec.ProbeRequest{})
	if err != nil {
		err = fmt.Errorf("ask the driver on %s: %w", socket, err)
	}
	return errors.Join(err, conn.Close())
}
