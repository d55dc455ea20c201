package look

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/ask"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/child/childtest"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/fs/mounttest"
)

func TestMain(m *testing.M) { childtest.Main(m, ask.Verbs()) }

func TestMountsUnderOthersAreHidden(t *testing.T) {
	var got []string
	for _, m := range choose([]mountpoint.Mount{
		{Path: "/", Type: "ext4"},
		{Path: "/mnt/a", Type: mountpoint.Type},
		{Path: "/mnt/b/data", Type: mountpoint.Type},
		{Path: "/mnt/ab", Type: "fuse.sshfs"},
		{Path: "/mnt/b", Type: "tmpfs"},
		{Path: "/mnt/c", Type: mountpoint.Type},
		{Path: "/mnt/c", Type: mountpoint.Type},
	}) {
		got = append(got, fmt.Sprint(m.Path, " ", m.Hidden))
	}
	want := []string{"/mnt/a false", "/mnt/b/data true", "/mnt/c true", "/mnt/c false"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAMountThatHangsIsAskedOnceAndLeft: its child ends with the mount.
func TestAMountThatHangsIsAskedOnceAndLeft(t *testing.T) {
	var left <-chan struct{}
	t.Run("look", func(t *testing.T) {
		at := mounttest.Hung(t, mountpoint.Type, "oss://hung")
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		seen := At(ctx, Mount{Mount: mountpoint.Mount{Path: at}})
		if seen.Health != Hung || seen.Left == nil || len(seen.Reasons) != 1 || !strings.Contains(seen.Reasons[0], "umount --force "+at) {
			t.Fatalf("%+v", seen)
		}
		left = seen.Left
	})
	select {
	case <-left:
	case <-time.After(time.Minute):
		t.Error("the child outlived the mount")
	}
}

// TestAllEndsWithItsCaller: who is interrupted does not wait for the rest of the time.
func TestAllEndsWithItsCaller(t *testing.T) {
	at := mounttest.Hung(t, mountpoint.Type, "oss://hung")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	seen := All(ctx, []Mount{{Mount: mountpoint.Mount{Path: at}}}, time.Hour)
	if len(seen) != 1 || seen[0].Health == OK || !errors.Is(ctx.Err(), context.Canceled) {
		t.Errorf("%+v", seen)
	}
}
