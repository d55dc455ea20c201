package daemonlog

import (
	"fmt"
	"log/slog"
	"log/syslog"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

func TestSyslogGetsTheSeverityOfTheLevel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	w, err := syslog.Dial("unixgram", path, syslog.LOG_DAEMON|syslog.LOG_INFO, "pailfs")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	sink := &syslogSink{to: w}
	log := slog.New(&syslogHandler{
		Handler: slog.NewTextHandler(&sink.line, &slog.HandlerOptions{Level: slog.LevelDebug}), sink: sink,
	}).With("part", "cache").WithGroup("g")

	buf := make([]byte, 4096)
	for level, severity := range map[slog.Level]syslog.Priority{
		slog.LevelDebug: syslog.LOG_DEBUG, slog.LevelInfo: syslog.LOG_INFO,
		slog.LevelWarn: syslog.LOG_WARNING, slog.LevelError: syslog.LOG_ERR,
	} {
		log.Log(t.Context(), level, "something", "key", "value")
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		line := string(buf[:n])
		want := fmt.Sprintf("<%d>", syslog.LOG_DAEMON|severity)
		if !strings.HasPrefix(line, want) || !strings.Contains(line, "msg=something part=cache g.key=value") {
			t.Errorf("%s: %q, want the beginning %s", level, line, want)
		}
	}
}
