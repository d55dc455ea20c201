package credentials

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(cloudKindEnv) != "" {
		// The child of TestCloudCredentials: the cloud library leaves the idle
		// connection of each of its requests to time out.
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}
