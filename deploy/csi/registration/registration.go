package registration

import (
	"context"
	"log/slog"
	"net"

	"google.golang.org/grpc"
	api "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// specVersion is the version of the container storage interface as kubelet compares it: by its major number.
const specVersion = "1.0.0"

// Driver is what kubelet is told.
type Driver struct {
	api.UnimplementedRegistrationServer

	// Name is the driver's, Endpoint its socket, as the host names it.
	Name, Endpoint string
	Log            *slog.Logger
}

var _ api.RegistrationServer = (*Driver)(nil)

// Serve answers kubelet on l, a socket in its directory of plugins, until ctx ends.
func (d *Driver) Serve(ctx context.Context, l net.Listener) error {
	server := grpc.NewServer()
	api.RegisterRegistrationServer(server, d)
	stop := context.AfterFunc(ctx, server.GracefulStop)
	defer stop()
	return server.Serve(l)
}

// GetInfo implements [api.RegistrationServer].
func (d *Driver) GetInfo(context.Context, *api.InfoRequest) (*api.PluginInfo, error) {
	return &api.PluginInfo{Type: api.CSIPlugin, Name: d.Name, Endpoint: d.Endpoint, SupportedVersions: []string{specVersion}}, nil
}

// NotifyRegistrationStatus implements [api.RegistrationServer]. After a refusal kubelet asks again by itself.
func (d *Driver) NotifyRegistrationStatus(_ context.Context, s *api.RegistrationStatus) (*api.RegistrationStatusResponse, error) {
	if s.GetPluginRegistered() {
		d.Log.Info("registered with kubelet", "endpoint", d.Endpoint)
	} else {
		d.Log.Error("kubelet refuses the driver", "endpoint", d.Endpoint, "error", s.GetError())
	}
	return &api.RegistrationStatusResponse{}, nil
}
