package ossemu

import (
	"context"
	"fmt"
	"net"
	"net/http"
)

// Server is the object service. It is an http.Handler; [Server.Serve] runs it
// on a listener with the settings that suit it.
type Server struct {
	cfg Config
}

// Open opens the directory of cfg and returns a server over it.
func Open(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open emulator: %w", err)
	}
	return &Server{cfg: cfg}, nil
}

// ServeHTTP answers one request to the object service.
func (s *Server) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusNotImplemented)
}

// Admin returns the handler of the administration address.
func (s *Server) Admin() http.Handler { return http.NotFoundHandler() }

// Stats returns the counters.
func (s *Server) Stats() Stats { return Stats{} }

// ResetStats begins counting anew.
func (s *Server) ResetStats() {}

// SetFaults replaces the faults.
func (s *Server) SetFaults(faults []Fault) error {
	for i, f := range faults {
		if err := f.validate(); err != nil {
			return fmt.Errorf("fault %d: %w", i, err)
		}
	}
	return nil
}

// SetShape replaces the shape. Requests that have begun keep the one before.
func (s *Server) SetShape(sh Shape) error { return sh.Validate() }

// AddCredential makes a further key known, or replaces the one with the same id.
func (s *Server) AddCredential(Credential) error { return nil }

// Serve answers requests on l until Close or Shutdown. It returns nil after
// either.
func (s *Server) Serve(net.Listener) error { return nil }

// Shutdown stops accepting and waits for the requests in flight until ctx ends,
// then closes the server.
func (s *Server) Shutdown(context.Context) error { return nil }

// Close ends every request at once, then closes the directory.
func (s *Server) Close() error { return nil }
