package mounting

import (
	"testing"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
)

func TestMain(m *testing.M) { programtest.Main(m, map[string]func() int{userRole: actAsUser}) }
