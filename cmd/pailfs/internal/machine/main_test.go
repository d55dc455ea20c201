package machine

import (
	"testing"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/child/childtest"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
)

func TestMain(m *testing.M) { childtest.Main(m, mountpoint.Verbs()) }
