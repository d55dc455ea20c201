package mountpoint

import (
	"testing"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/child/childtest"
)

func TestMain(m *testing.M) { childtest.Main(m, Verbs()) }
