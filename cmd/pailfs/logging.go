package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"log/syslog"
	"os"
	"runtime/debug"
	"sync"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
)

// logFile is a log file that can be opened again after it was rotated.
type logFile struct {
	path string
	mu   struct {
		sync.Mutex
		file *os.File
	}
}

// openLogFile opens path for appending; only its owner may read it, for file
// names can be confidential.
func openLogFile(path string) (*logFile, error) {
	l := &logFile{path: path}
	if err := l.Reopen(); err != nil {
		return nil, err
	}
	return l, nil
}

// Write implements [io.Writer].
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.file.Write(p)
}

// Reopen opens the path again and lets the file before go. A crash of the program
// is written there as well.
func (l *logFile) Reopen() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log file: %w", err)
	}
	if err := debug.SetCrashOutput(f, debug.CrashOptions{}); err != nil {
		_ = f.Close() // the first error counts
		return fmt.Errorf("open log file %s: %w", l.path, err)
	}
	l.mu.Lock()
	before := l.mu.file
	l.mu.file = f
	l.mu.Unlock()
	if before != nil {
		return before.Close()
	}
	return nil
}

// Close closes the file.
func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.file.Close()
}

// daemonLog is where the daemon's log goes.
type daemonLog struct {
	*slog.Logger
	file *logFile // nil without --log-file
	to   string   // for status
	lost bool     // nothing keeps it
}

// openLog returns the log of a daemon: the log file if there is one, else stderr
// for a foreground mount and syslog for a detached one.
func openLog(c *config.Config, stderr io.Writer, detached bool) (daemonLog, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return daemonLog{}, fmt.Errorf("log level %q: %w", c.LogLevel, err)
	}
	options := &slog.HandlerOptions{Level: level}
	handler := func(w io.Writer) slog.Handler {
		if c.LogFormat == "json" {
			return slog.NewJSONHandler(w, options)
		}
		return slog.NewTextHandler(w, options)
	}
	switch {
	case c.LogFile != "":
		f, err := openLogFile(c.LogFile)
		if err != nil {
			return daemonLog{}, err
		}
		return daemonLog{Logger: slog.New(handler(f)), file: f, to: c.LogFile}, nil
	case !detached:
		return daemonLog{Logger: slog.New(handler(stderr)), to: "standard error"}, nil
	}
	w, err := syslog.New(syslog.LOG_DAEMON|syslog.LOG_INFO, "pailfs")
	if err != nil {
		return daemonLog{Logger: slog.New(slog.DiscardHandler), to: "nowhere: there is no syslog, and no log-file is set", lost: true}, nil
	}
	shared := &syslogSink{to: w}
	return daemonLog{Logger: slog.New(&syslogHandler{Handler: handler(&shared.line), sink: shared}), to: "syslog"}, nil
}

// Close closes what openLog opened.
func (l daemonLog) Close() error {
	if l.file != nil {
		return l.file.Close()
	}
	return nil
}

// syslogSink is the connection to syslog and the buffer in which the inner handler
// leaves each line; the mutex is held from the one to the other.
type syslogSink struct {
	sync.Mutex
	line bytes.Buffer
	to   *syslog.Writer
}

// syslogHandler gives each line the severity of its level.
type syslogHandler struct {
	slog.Handler
	sink *syslogSink
}

// Handle implements [slog.Handler].
func (h *syslogHandler) Handle(ctx context.Context, r slog.Record) error {
	h.sink.Lock()
	defer h.sink.Unlock()
	h.sink.line.Reset()
	if err := h.Handler.Handle(ctx, r); err != nil {
		return err
	}
	line := h.sink.line.String()
	switch {
	case r.Level >= slog.LevelError:
		return h.sink.to.Err(line)
	case r.Level >= slog.LevelWarn:
		return h.sink.to.Warning(line)
	case r.Level >= slog.LevelInfo:
		return h.sink.to.Info(line)
	default:
		return h.sink.to.Debug(line)
	}
}

// WithAttrs implements [slog.Handler].
func (h *syslogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &syslogHandler{Handler: h.Handler.WithAttrs(attrs), sink: h.sink}
}

// WithGroup implements [slog.Handler].
func (h *syslogHandler) WithGroup(name string) slog.Handler {
	return &syslogHandler{Handler: h.Handler.WithGroup(name), sink: h.sink}
}
