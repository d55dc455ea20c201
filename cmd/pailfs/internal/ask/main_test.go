package ask

import (
	"os"
	"testing"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/child"
	"github.com/pailfs/pailfs/fs/mounttest"
)

func TestMain(m *testing.M) {
	if code, served := child.Serve(os.Args, Verbs()); served {
		os.Exit(code)
	}
	os.Exit(mounttest.Main(m.Run))
}
