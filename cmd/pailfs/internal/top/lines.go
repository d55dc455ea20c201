package top

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/pailfs/pailfs/cmd/terminal"
)

// writeJSON writes a frame as one line.
func writeJSON(w io.Writer, f Frame) error { return json.NewEncoder(w).Encode(f) }

// writeText writes all of a frame, for people.
func writeText(w io.Writer, f Frame) error {
	var b strings.Builder
	for i, m := range f.Mounts {
		if i > 0 {
			b.WriteByte('\n')
		}
		for _, line := range text(m, f.Time) {
			b.WriteString(line)
			b.WriteByte('\n')
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// lines writes frames for a pipe or a file: a line a mount, and now and then what the columns are.
type lines struct {
	written int
}

// headEvery is after how many lines the columns are named again.
const headEvery = 40

// write writes one frame.
func (l *lines) write(w io.Writer, f Frame) error {
	for _, m := range f.Mounts {
		if l.written%headEvery == 0 {
			if _, err := fmt.Fprintf(w, "%-8s %-9s %10s %10s %10s %5s %8s %10s %8s %s\n",
				"TIME", "HEALTH", "MEMORY/S", "SSD/S", "OSS/S", "HITS", "READS/S", "UPLOAD/S", "PENDING", "MOUNTPOINT"); err != nil {
				return err
			}
		}
		l.written++
		memory, ssd, oss, hits, reads, upload, pending := none, none, none, none, none, none, none
		if r := m.Rates; r != nil {
			memory, ssd, oss = size(r.Memory.Bytes), size(r.SSD.Bytes), size(r.OSS.Bytes)
			reads, upload = fmt.Sprintf("%.0f", r.Reads), size(r.UploadedBytes)
			if all := r.Memory.Share + r.SSD.Share + r.OSS.Share; all > 0 {
				hits = share(r.Memory.Share + r.SSD.Share)
			}
		}
		if u := m.Uploads; u != nil {
			pending = size(float64(u.PendingBytes))
		}
		if _, err := fmt.Fprintf(w, "%-8s %-9s %10s %10s %10s %5s %8s %10s %8s %s\n",
			f.Time.Format("15:04:05"), m.Health, memory, ssd, oss, hits, reads, upload, pending, terminal.Name(m.MountPoint)); err != nil {
			return err
		}
	}
	if len(f.Mounts) == 0 {
		_, err := fmt.Fprintf(w, "%s no mounts\n", f.Time.Format("15:04:05"))
		return err
	}
	return nil
}

// none stands for what is not known.
const none = "-"

// size returns bytes for people.
func size(bytes float64) string { return terminal.Size(int64(bytes)) }

// share returns a part of one in per cent.
func share(of float64) string { return fmt.Sprintf("%.0f%%", 100*of) }
