package audit

import (
	"os"
	"testing"

	"github.com/pailfs/pailfs/fs/mounttest"
)

// TestMain runs the tests in a mount namespace of their own, in which they have disks and
// sockets of their own.
func TestMain(m *testing.M) { os.Exit(mounttest.Main(m.Run)) }
