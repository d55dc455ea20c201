package mounting

import (
	"log/slog"
	"testing"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/oss/credentials"
)

func TestHealthFailsWhenTheMountDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	f := programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
	source, err := credentials.Open(credentials.Config{Kind: credentials.Anonymous}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = source.Close() }()
	observer := &Daemon{umounts: umounts{liveness: mountpoint.NewProber(s.At)}, store: store{credentials: source}}
	if h := observer.health(); h.Status != "ok" || h.Mount != "alive" {
		t.Errorf("living mount: %+v", h)
	}
	f.Freeze(t)
	if h := observer.health(); h.Status != "failing" || h.Mount != "stuck" {
		t.Errorf("stopped daemon: %+v", h)
	}
	if err := f.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	f.Code(t)
	if h := observer.health(); h.Status != "failing" || h.Mount != "dead" {
		t.Errorf("dead daemon: %+v", h)
	}
}
