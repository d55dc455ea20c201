package systemtest

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// line is the network between the daemon and the store.
type line struct {
	t      *testing.T
	listen net.Listener
	to     string
	done   sync.WaitGroup

	mu struct {
		sync.Mutex
		state lineState
		conns map[net.Conn]struct{}
		// changed is closed when state changes.
		changed chan struct{}
	}
}

// lineState is what becomes of what is sent.
type lineState uint8

const (
	connected lineState = iota
	// refused: connections are reset, new ones at once.
	refused
	// silent: nothing arrives any more, and nobody is told.
	silent
)

// newLine puts a line between the daemon and the store of the world.
func (w *world) newLine() *line {
	w.t.Helper()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	l := &line{t: w.t, listen: listen, to: w.Endpoint[len("http://"):]}
	l.mu.conns = map[net.Conn]struct{}{}
	l.mu.changed = make(chan struct{})
	l.done.Go(l.accept)
	w.t.Cleanup(func() {
		_ = listen.Close()
		l.set(refused)
		l.done.Wait()
	})
	w.Endpoint = "http://" + listen.Addr().String()
	return l
}

func (l *line) accept() {
	for {
		c, err := l.listen.Accept()
		if err != nil {
			return
		}
		l.done.Go(func() { l.serve(c) })
	}
}

// keep remembers a connection that is to be cut. It reports false for one that
// must not be.
func (l *line) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.state == refused {
		return false
	}
	l.mu.conns[c] = struct{}{}
	return true
}

func (l *line) drop(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.conns, c)
	_ = c.Close() // it may have been cut
}

func (l *line) serve(c net.Conn) {
	defer l.drop(c)
	if !l.keep(c) {
		_ = c.(*net.TCPConn).SetLinger(0)
		return
	}
	s, err := net.Dial("tcp", l.to)
	if err != nil {
		return
	}
	defer l.drop(s)
	if !l.keep(s) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.copy(s, c) })
	both.Go(func() { l.copy(c, s) })
	both.Wait()
}

// copy carries bytes as long as the line does.
func (l *line) copy(to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		for {
			l.mu.Lock()
			state, changed := l.mu.state, l.mu.changed
			l.mu.Unlock()
			if state != silent {
				break
			}
			<-changed
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				_ = from.Close() // nobody takes it
				return
			}
		}
		if err != nil {
			if tcp, ok := to.(*net.TCPConn); ok && errors.Is(err, io.EOF) {
				_ = tcp.CloseWrite() // it may be closed
			} else {
				_ = to.Close()
			}
			return
		}
	}
}

// set changes the state of the line.
func (l *line) set(state lineState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.state = state
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
	if state == refused {
		for c := range l.mu.conns {
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
	}
}

// The store cannot be reached for a while in the middle of reads: they wait, and
// go on when it is back.
func TestStoreOutOfReachForAWhile(t *testing.T) {
	rng := newRandom(t)
	w := newWorld(t)
	l := w.newLine()
	w.crowd(rng, 120<<20)
	d := w.mount("--metadata-ttl=1s")
	for _, how := range []lineState{refused, silent, refused, silent} {
		j := w.job(rng)
		r := j.start(t)
		time.Sleep(time.Duration(rng.IntN(700)) * time.Millisecond)
		l.set(how)
		time.Sleep(time.Duration(2000+rng.IntN(2000)) * time.Millisecond)
		l.set(connected)
		time.Sleep(time.Second)
		r.tell()
		told := r.wait(d)
		told.sound(t, "out of reach")
		t.Logf("%d reads, slowest %v %s", told.Reads, told.Slowest.Round(time.Millisecond), told.SlowestCall)
		d.verify("back in reach", w.files, random, sequential)
	}
	d.stop()
}

// What is whole in the cache is read to the last byte while the store is gone,
// new opens included, for as long as names are known; and what hangs for want of
// it can be killed.
func TestStoreGoneAndEverythingCached(t *testing.T) {
	rng := newRandom(t)
	w := newWorld(t)
	l := w.newLine()
	w.crowd(rng, 40<<20)
	cached := w.files
	missing := w.add("missing", 5<<20)
	d := w.mount("--metadata-ttl=1h")
	d.fetch(cached)
	d.verify("names", missing, reopened)
	for _, how := range []lineState{refused, silent} {
		l.set(how)
		forget(w, w.files)
		d.verify("without a store", cached, random, mapped, whole, sequential)

		// A reader of what is not cached waits, and dies when it is killed.
		stuck := job{Root: w.at, Files: missing, Readers: 1, Kinds: []string{sequential}, EachOnce: true}.start(t)
		time.Sleep(200 * time.Millisecond)
		if err := stuck.cmd.Process.Signal(unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		select {
		case _, ok := <-stuck.result:
			if ok {
				t.Error("what was not cached was read without a store")
			}
		case <-time.After(patience):
			d.dump()
			t.Fatal("a reader that waits for the store cannot be killed")
		}
		stuck.over = true
	}
	d.verify("still without a store", cached, sequential)
	l.set(connected)
	d.verify("with the store again", w.files, sequential)
	l.set(silent)
	d.stop()
}
