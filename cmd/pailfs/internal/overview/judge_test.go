package overview

import (
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/fs/writeback"
)

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
