package audit

import (
	"bytes"
	"time"

	"golang.org/x/time/rate"

	"github.com/pailfs/pailfs/cmd/internal/command"
	pailfs "github.com/pailfs/pailfs/fs"
)

// writer brings records into the sink, in their order and each once. It belongs to one
// goroutine.
type writer struct {
	log  *Log
	sink sink
	// warns bounds how often dropped records are logged.
	warns *rate.Limiter
	seq   uint64
	// lines are encoded records, of which the sink has the first sent bytes.
	lines []byte
	sent  int
	// until is when a sink that fails is given up, zero as long as the mount lives.
	until time.Time
}

// run writes until the log is closed.
func (l *Log) run() {
	defer close(l.ended)
	var batch []entry
	for {
		select {
		case <-l.wake:
		case <-l.turn:
			l.writer.turn()
			l.writer.deliver()
			continue
		}
		l.collect()
		var closing bool
		for {
			batch, closing = l.take(batch)
			if len(batch) == 0 {
				break
			}
			l.writer.writeAll(batch)
			clear(batch) // let go of what they point to
		}
		if closing {
			l.writer.own(verbStop, nil)
			l.writer.deliver()
			l.mu.Lock()
			l.mu.over = true
			l.mu.Unlock()
			return
		}
	}
}

// collect waits for more records for a moment, unless the log is being closed.
func (l *Log) collect() {
	l.mu.Lock()
	closing := l.mu.closing
	l.mu.Unlock()
	if closing {
		return
	}
	timer := time.NewTimer(l.cfg.linger)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.wake: // half full, or being closed
	}
}

// take returns what is queued, and lets those go on who wait for room. spare is used for what
// comes next.
func (l *Log) take(spare []entry) (batch []entry, closing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch, l.mu.queue = l.mu.queue, spare[:0]
	l.makeRoom()
	return batch, l.mu.closing
}

// writeAll writes records.
func (w *writer) writeAll(batch []entry) {
	for i := range batch {
		w.encode(&batch[i])
		if len(w.lines)-w.sent >= mostLines {
			w.deliver()
		}
	}
	w.deliver()
}

// own encodes a line about the log itself.
func (w *writer) own(verb pailfs.Verb, members []member) {
	w.encode(&entry{Operation: pailfs.Operation{Verb: verb, Began: time.Now()}, own: append([]member{}, members...)})
}

// encode makes the line of a record, after one that tells how many were dropped before.
func (w *writer) encode(e *entry) {
	l := w.log
	l.mu.Lock()
	dropped, first, last := l.mu.dropped, l.mu.first, l.mu.last
	l.mu.dropped = 0
	l.mu.Unlock()
	if dropped > 0 {
		w.append(&entry{Operation: pailfs.Operation{Verb: verbDropped, Began: time.Now()}, own: []member{
			{"records", dropped}, {"first", first}, {"last", last},
		}})
		if w.warns.Allow() {
			l.log.Warn("records of the audit were dropped, for the queue was full", "to", l.cfg.To, "records", dropped)
		}
	}
	w.append(e)
}

func (w *writer) append(e *entry) {
	w.seq++
	w.lines = appendLine(w.lines, w.seq, e)
}

// deliver brings the lines into the sink, however long that takes, unless the mount ends.
func (w *writer) deliver() {
	for {
		var err error
		if w.sink.lost() {
			err = w.reopen("the file was deleted")
		}
		if err == nil {
			err = w.write()
		}
		if err == nil {
			w.works()
			return
		}
		w.fails(err)
		if !w.await() {
			w.giveUp()
			return
		}
	}
}

// write gives the sink the lines once.
func (w *writer) write() error {
	n, err := w.sink.write(w.lines[w.sent:])
	written := bytes.Count(w.lines[w.sent:w.sent+n], []byte("\n"))
	w.sent += n
	if w.sent == len(w.lines) {
		w.lines, w.sent = w.lines[:0], 0
	}
	w.log.mu.Lock()
	w.log.mu.status.Written += uint64(written)
	w.log.mu.Unlock()
	return err
}

// works notes that the sink takes lines.
func (w *writer) works() {
	l := w.log
	l.mu.Lock()
	failed := l.mu.status.Since
	l.mu.status.Error, l.mu.status.Since = "", time.Time{}
	l.mu.Unlock()
	if !failed.IsZero() {
		l.log.Info("the audit is written again", "to", l.cfg.To, "failed_for", time.Since(failed).Round(time.Millisecond).String())
	}
}

// fails notes that the sink does not.
func (w *writer) fails(err error) {
	l := w.log
	l.mu.Lock()
	first := l.mu.status.Since.IsZero()
	if first {
		l.mu.status.Since = time.Now()
	}
	l.mu.status.Error = command.OneLine(err)
	l.mu.status.Failures++
	l.mu.Unlock()
	if first {
		l.log.Error("the audit cannot be written; it is tried again", "to", l.cfg.To, "full", l.cfg.Full, "error", err)
	}
}

// await waits until the sink is to be tried again, and is false if it is to be given up.
func (w *writer) await() bool {
	l := w.log
	l.mu.Lock()
	closing := l.mu.closing
	l.mu.Unlock()
	if closing && w.until.IsZero() {
		w.until = time.Now().Add(closePatience)
	}
	if !w.until.IsZero() && time.Now().After(w.until) {
		return false
	}
	timer := time.NewTimer(retryEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.turn:
		w.turn()
	}
	return true
}

// giveUp counts the lines that are left as dropped.
func (w *writer) giveUp() {
	left := bytes.Count(w.lines[w.sent:], []byte("\n"))
	w.lines, w.sent = w.lines[:0], 0
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	w.log.drop(uint64(left), time.Now())
}

// turn begins a new file after a rotation.
func (w *writer) turn() {
	if err := w.reopen("SIGHUP"); err != nil {
		w.log.log.Error("cannot open the audit again; it goes on where it was", "to", w.log.cfg.To, "error", err)
	}
}

// reopen begins a new file, where the sink is one. The record of it comes after those that wait.
func (w *writer) reopen(why string) error {
	l := w.log
	if err := w.sink.reopen(); err != nil {
		return err
	}
	l.mu.Lock()
	l.mu.status.Reopened++
	l.mu.Unlock()
	l.log.Info("the audit was opened again", "to", l.cfg.To, "reason", why)
	w.own(verbReopened, []member{{"reason", why}})
	return nil
}
