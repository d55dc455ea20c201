package childtest

import (
	"os"
	"testing"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/child"
	"github.com/pailfs/pailfs/fs/mounttest"
)

// Main runs the tests of a package, in a mount namespace of their own, or is the child that makes the
// call that one of verbs names. It does not return.
func Main(m *testing.M, verbs map[string]child.Verb) {
	if code, served := child.Serve(os.Args, verbs); served {
		os.Exit(code)
	}
	os.Exit(mounttest.Main(m.Run))
}
