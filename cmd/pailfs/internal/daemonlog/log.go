package daemonlog

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

// file is a log file that can be opened again after it was rotated.
type file struct {
	path string
	mu   struct {
		sync.Mutex
		file *os.File
	}
}

// openFile opens path for appending; only its owner may read it, for file
// names can be confidential.
func openFile(path string) (*file, error) {
	l := &file{path: path}
	if err := l.Reopen(); err != nil {
		return nil, err
	}
	return l, nil
}

// Write implements [io.Writer].
func (l *file) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.file.Write(p)
}

// Reopen opens the path again and lets the file before go. A crash of the program
// is written there as well.
func (l *file) Reopen() error {
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
func (l *file) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.file.Close()
}

// Log is where the daemon's log goes.
type Log struct {
	*slog.Logger
	file *file  // nil without --log-file
	To   string // for status
	Lost bool   // nothing keeps it
}

// Open returns the log of a daemon: the log file if there is one, else stderr
// for a foreground mount and syslog for a detached one.
func Open(c *config.Config, stderr io.Writer, detached bool) (Log, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return Log{}, fmt.Errorf("log level %q: %w", c.LogLevel, err)
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
		f, err := openFile(c.LogFile)
		if err != nil {
			return Log{}, err
		}
		return Log{Logger: slog.New(handler(f)), file: f, To: c.LogFile}, nil
	case !detached:
		return Log{Logger: slog.New(handler(stderr)), To: "standard error"}, nil
	}
	w, err := syslog.New(syslog.LOG_DAEMON|syslog.LOG_INFO, "pailfs")
	if err != nil {
		return Log{Logger: slog.New(slog.DiscardHandler), To: "nowhere: there is no syslog, and no log-file is set", Lost: true}, nil
	}
	shared := &syslogSink{to: w}
	return Log{Logger: slog.New(&syslogHandler{Handler: handler(&shared.line), sink: shared}), To: "syslog"}, nil
}

// Reopen opens the log file again after it was rotated.
func (l Log) Reopen() {
	if l.file == nil {
		return
	}
	if err := l.file.Reopen(); err != nil {
		l.Error("cannot open the log file again; logging to the one before", "error", err)
	}
}

// Close closes what Open opened.
func (l Log) Close() error {
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
