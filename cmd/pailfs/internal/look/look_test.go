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
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/fs/mounttest"
	"github.com/pailfs/pailfs/fs/writeback"
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

func TestHealthIsWhatTheDaemonSaysIsWrong(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	past := now.Add(-time.Second)
	for name, c := range map[string]struct {
		spoil func(*wire.Status)
		want  string
	}{
		"nothing":     {func(*wire.Status) {}, ""},
		"refused":     {func(s *wire.Status) { s.Store.Refused = &wire.Refused{Reason: "denied"} }, "refuses access: denied"},
		"expired":     {func(s *wire.Status) { s.Store.Credentials.Expires = &past }, "credentials have expired"},
		"not renewed": {func(s *wire.Status) { s.Store.Credentials.Error = "no role" }, "cannot be renewed: no role"},
		"failing":     {func(s *wire.Status) { s.Writing.FailingCount = 3 }, "3 uploads fail"},
		"failing, a path": {func(s *wire.Status) {
			s.Writing.FailingCount = 1
			s.Writing.Failing = []writeback.PendingEntry{{Path: "a", Error: "denied"}}
		}, "such as a: denied"},
		"lost":      {func(s *wire.Status) { s.Writing.SuspectCount = 1 }, "the disk lost 1 files"},
		"corrupted": {func(s *wire.Status) { s.Cache.Corrupted = 2 }, "2 objects did not match"},
		"manifest":  {func(s *wire.Status) { s.Manifest.Damaged, s.Manifest.Damage = 1, "bad sum" }, "manifest is damaged: bad sum"},
		"draining":  {func(s *wire.Status) { s.Drain = &wire.Drain{Reason: "spot", Unsafe: 4} }, "about to go (spot), and 4 changes"},
		"drained":   {func(s *wire.Status) { s.Drain = &wire.Drain{Reason: "spot", Safe: true} }, ""},
	} {
		s := &wire.Status{Writing: &writeback.Status{}}
		c.spoil(s)
		health, reasons := Judge(s, now)
		if got := strings.Join(reasons, "; "); (c.want == "") != (health == OK) || !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %s, %q", name, health, got)
		}
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
