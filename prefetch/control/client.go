package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Client calls the daemon behind a mount. It is safe for concurrent use. A call
// that waits occupies one thread.
type Client struct {
	path  string
	dir   *os.File
	hello Hello
	// exchange sends a buffer to the daemon and receives its answer in it. It
	// returns the number of bytes that mean something.
	exchange func(buf []byte) (int, error)
	// version is the protocol version put into frames.
	version uint8

	buffers sync.Pool
	calls   sync.WaitGroup
}

// Dial opens the mount that path, any directory in it, belongs to, and asks its
// daemon for its version.
//
// The error is [ErrNotPailfs] if path is not in a pailfs mount, [ErrDaemonGone]
// if the daemon has ended, an [Error] with [CodeVersion] if it speaks another
// protocol version, or else what opening the directory gave.
func Dial(path string) (*Client, error) {
	dir, err := openMount(path)
	if err != nil {
		return nil, fmt.Errorf("open control channel at %q: %w", path, err)
	}
	c := newClient(path, func(buf []byte) (int, error) { return ioctl(dir, buf) })
	c.dir = dir
	err = c.Call(context.Background(), "hello", nil, &c.hello)
	if err == nil && c.hello.Server != serverName {
		err = fmt.Errorf("%w: it calls itself %q", ErrNotPailfs, c.hello.Server)
	}
	if err != nil {
		_ = dir.Close()
		return nil, fmt.Errorf("open control channel at %q: %w", path, err)
	}
	return c, nil
}

// newClient returns a client that speaks through exchange.
func newClient(path string, exchange func([]byte) (int, error)) *Client {
	c := &Client{path: path, exchange: exchange, version: Version}
	c.buffers.New = func() any { return new([BufferSize]byte) }
	return c
}

// Hello returns what the daemon said of itself when it was dialled.
func (c *Client) Hello() Hello { return c.hello }

// Close waits for calls that were given up to be taken back, and closes the
// directory. A mount can be unmounted only after that.
func (c *Client) Close() error {
	c.calls.Wait()
	if c.dir == nil {
		return nil
	}
	if err := c.dir.Close(); err != nil {
		return fmt.Errorf("close control channel at %q: %w", c.path, err)
	}
	return nil
}

// Call calls method with params, anything that encoding/json can encode or nil
// for none, and stores its result in result, a pointer or nil. It waits as long
// as the method takes. When ctx ends, Call returns its error at once and the
// daemon is told to cancel the method.
//
// A failure that the daemon told is an [Error]. [ErrDaemonGone] means that the
// daemon ended, before or while the method ran.
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	doc, err := c.call(ctx, method, params)
	if err != nil {
		return fmt.Errorf("call %s: %w", method, err)
	}
	var a answer
	if err := json.Unmarshal(doc, &a); err != nil {
		return fmt.Errorf("call %s: read answer: %w", method, err)
	}
	if a.Error != nil {
		return fmt.Errorf("call %s: %w", method, a.Error)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(a.Result, result); err != nil {
		return fmt.Errorf("call %s: read result: %w", method, err)
	}
	return nil
}

// call returns the answer document of one call.
func (c *Client) call(ctx context.Context, method string, params any) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	req := request{Method: method}
	if params != nil {
		raw, err := encodeJSON(params)
		if err != nil {
			return nil, fmt.Errorf("encode parameters: %w", err)
		}
		req.Params = raw
	}
	payload, err := encodeJSON(req)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	if len(payload) > MaxPayload {
		return nil, fmt.Errorf("the request has %d bytes, the limit is %d", len(payload), MaxPayload)
	}

	if ctx.Done() == nil {
		return c.converse(ctx, payload) // nobody calls it back
	}
	// An ioctl blocks for up to a second and cannot be called back, so it is made
	// beside the caller, who may leave when ctx ends.
	type outcome struct {
		doc []byte
		err error
	}
	done := make(chan outcome, 1)
	c.calls.Go(func() {
		doc, err := c.converse(ctx, payload)
		done <- outcome{doc, err}
	})
	select {
	case o := <-done:
		return o.doc, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// converse sends the request and collects its answer document, asking again as
// long as the daemon says so. When ctx ends it drops the call.
func (c *Client) converse(ctx context.Context, payload []byte) ([]byte, error) {
	buf := c.buffers.Get().(*[BufferSize]byte)
	defer c.buffers.Put(buf)
	var doc []byte
	ask := frame{version: c.version, kind: kindCall, payload: payload}
	for {
		a, err := c.roundTrip(buf[:], ask)
		if err != nil {
			return nil, err
		}
		if a.kind == kindLast && a.offset == 0 {
			doc = doc[:0] // it takes the place of what came: the call was given up meanwhile, and this says why
		}
		if a.kind != kindWait {
			if int(a.offset) != len(doc) {
				return nil, fmt.Errorf("daemon answered from byte %d on, not %d", a.offset, len(doc))
			}
			doc = append(doc, a.payload...)
		}
		if a.kind == kindLast {
			return doc, nil
		}
		if a.kind == kindWait && a.offset > 0 {
			pause(ctx, time.Duration(min(a.offset, longestPause))*time.Millisecond)
		}
		ask = frame{version: c.version, kind: kindNext, offset: uint32(len(doc)), cursor: a.cursor}
		if ctx.Err() != nil {
			ask.kind, ask.offset = kindDrop, 0
			// The caller has left already: an error has no reader, and the daemon
			// forgets the call by itself before long.
			_, _ = c.roundTrip(buf[:], ask)
			return nil, ctx.Err()
		}
	}
}

// longestPause is how many milliseconds a daemon may have its client wait.
const longestPause = 1000

// pause waits for a while, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// roundTrip exchanges one frame. The answer's payload points into buf.
func (c *Client) roundTrip(buf []byte, ask frame) (frame, error) {
	ask.encode(buf)
	n, err := c.exchange(buf)
	if err != nil {
		return frame{}, err
	}
	if n < headerSize || n > len(buf) {
		return frame{}, fmt.Errorf("%w: its answer has %d bytes", ErrNotPailfs, n)
	}
	a, err := decodeFrame(buf[:n])
	switch {
	case errors.Is(err, errMagic):
		return frame{}, fmt.Errorf("%w: %w", ErrNotPailfs, err)
	case a.version != c.version:
		return frame{}, Errorf(CodeVersion, "daemon speaks protocol version %d, client %d", a.version, c.version)
	case err != nil:
		return frame{}, fmt.Errorf("read answer: %w", err)
	case a.kind != kindLast && a.kind != kindMore && a.kind != kindWait:
		return frame{}, fmt.Errorf("read answer: frame kind %#x is not an answer", uint8(a.kind))
	case a.kind == kindMore && len(a.payload) == 0:
		// It would be asked for for ever.
		return frame{}, errors.New("read answer: a piece without bytes")
	}
	return a, nil
}
