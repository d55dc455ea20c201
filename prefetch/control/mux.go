package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/pailfs/pailfs/prefetch/budget"
	"github.com/pailfs/pailfs/prefetch/session"
)

// Caller is the process that made a request, as the kernel reports it. PID is 0
// when the process is outside the daemon's pid namespace, and for methods that are
// prompt and for anyone, where it was not asked for.
type Caller struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
	PID uint32 `json:"pid"`
	// Dir is the directory on which the request was made, relative to the root of
	// the mount. Paths in parameters are relative to it.
	Dir string `json:"dir,omitempty"`
	// DirID tells that directory from others that had its path or will have it.
	DirID uint64 `json:"-"`
	// Handle is the open description of that directory, 0 where it is not known.
	Handle uint64 `json:"-"`
	// TID is the thread that made it, of which PID is made where it is wanted.
	TID uint32 `json:"-"`
	// Groups are its supplementary groups, as far as PID is known.
	Groups session.Groups `json:"-"`
	// Guest says that it has the id of root or of the daemon's own user and is not
	// trusted as they are; the mux says so of every caller of a method that is not prompt.
	Guest bool `json:"-"`
}

// User returns who is charged for what c makes the daemon keep.
func (c Caller) User() budget.User { return budget.User{UID: c.UID, Guest: c.Guest} }

// Who returns on whose behalf a method works that c calls.
func (c Caller) Who() session.Who {
	return session.As(c.UID, c.GID, c.Groups, session.Base{Path: c.Dir, ID: c.DirID})
}

// Path returns the path in the mount of a name that c has said in parameters.
func (c Caller) Path(name string) (string, error) { return within(c.Dir, name) }

// Seen returns the path that c has to what is at path in the mount, "" where it is not at or
// below the directory of c.
func (c Caller) Seen(path string) string { return seen(c.Dir, path) }

// Access says who may call a method.
type Access uint8

// The levels of access.
const (
	// Owner lets root and the daemon's own user call.
	Owner Access = iota
	// Anyone lets every user call who can open a directory of the mount.
	Anyone
)

// MuxConfig is the configuration of a [Mux]. Limits that are zero or less mean
// their default.
type MuxConfig struct {
	// OwnerUID is the user that, beside root, may call [Owner] methods: the
	// daemon's own.
	OwnerUID uint32
	// Trusted, if set, is asked beside whether a caller may call [Owner] methods, and is
	// charged as the owner is: root of a container is root, but not the daemon's.
	Trusted func(Caller) bool
	// ProcessOf, if set, tells the process of a thread and its supplementary groups. It
	// may take longer than a method that is prompt.
	ProcessOf func(tid uint32) (pid uint32, groups []uint32)
	// Called, if set, is told of every call of a method that there is, with its parameters as
	// they came, which it must not keep. ctx ends with the request. What it returns is called
	// with how the call was answered, before the answer can be seen.
	Called func(ctx context.Context, c Caller, method string, params json.RawMessage) (answered func(Code))
	// Version is the version of the daemon, told to clients by hello.
	Version string
	// Ledger bounds the calls that run or whose answer is being fetched, what those
	// that run were asked, and the answers, by user. Default what [budget.DefaultLimits]
	// says, of which root and the owner may have all.
	Ledger *budget.Ledger
	// MaxAnswerBytes bounds one answer. Default 4 MiB.
	MaxAnswerBytes int64
}

// How long things may take. They are part of the protocol: a client relies on
// being answered within a second, and must ask again within idleLimit.
const (
	waitLimit = 800 * time.Millisecond
	idleLimit = 15 * time.Second
	// A client that cannot wait in the daemon asks again after a quarter of the time that
	// its call has taken so far, within these.
	leastPause = 10 * time.Millisecond
	mostPause  = 250 * time.Millisecond
)

// Mux routes requests to registered methods. Its zero value is not usable.
type Mux struct {
	cfg     MuxConfig
	log     *slog.Logger
	metrics *metrics
	methods map[string]method
	serving atomic.Bool
	// refusals bounds how many refused calls are logged.
	refusals *rate.Limiter

	handlers sync.WaitGroup
	// newCursor returns a cursor that nobody can guess.
	newCursor func() cursor
	// released is told of every open description that was closed.
	released func(handle uint64)

	mu struct {
		sync.Mutex
		closed bool
		calls  map[cursor]*call
		// held are the open descriptions by which calls came that run.
		held map[uint64]hold
	}
}

// hold is an open description while methods run that were called by it.
type hold struct {
	// running counts them.
	running int
	// released says that it was closed meanwhile.
	released bool
}

// method is a registered method.
type method struct {
	access Access
	// prepare decodes the parameters. prompt says that the work never waits, and size how
	// much memory it takes while it runs.
	prepare func(c Caller, params json.RawMessage) (do work, prompt bool, size int64)
}

// sized are parameters from which more is made than the request has bytes.
type sized interface {
	// size returns how many bytes are kept for them while the method runs.
	size(c Caller) int64
}

// work calls the typed function of a method and encodes its result.
type work func(ctx context.Context, c Caller) (json.RawMessage, error)

// NewMux returns a Mux that knows the method hello.
func NewMux(cfg MuxConfig, reg prometheus.Registerer, log *slog.Logger) *Mux {
	if cfg.Ledger == nil {
		cfg.Ledger = budget.New(budget.DefaultLimits(), cfg.OwnerUID)
	}
	if cfg.Called == nil {
		cfg.Called = func(context.Context, Caller, string, json.RawMessage) func(Code) { return func(Code) {} }
	}
	if cfg.MaxAnswerBytes <= 0 {
		cfg.MaxAnswerBytes = 4 << 20
	}
	m := &Mux{
		cfg:       cfg,
		log:       log,
		metrics:   newMetrics(reg),
		methods:   make(map[string]method),
		newCursor: randomCursor,
		refusals:  rate.NewLimiter(rate.Every(time.Second), 20),
		released:  func(uint64) {},
	}
	m.mu.calls = make(map[cursor]*call)
	m.mu.held = make(map[uint64]hold)
	Handle(m, "hello", Anyone, m.hello)
	return m
}

// Handle registers fn as the method called name. Parameters and result are
// whatever encoding/json makes of P and R; parameters that P does not have are
// refused. fn runs on a goroutine of its own. Its context ends when the client
// cancels the call, stops asking for it, or the mux is closed.
//
// Handle panics if the name is empty or taken, or if the mux already serves.
func Handle[P, R any](m *Mux, name string, access Access, fn func(ctx context.Context, c Caller, params P) (R, error)) {
	handle(m, name, access, func(P) bool { return true }, fn)
}

// HandlePrompt is Handle for a method that waits for nothing but short locks, unless
// waits says of its parameters that it does; nil means never. It runs in the ioctl
// itself: to hand a call to another goroutine, and perhaps another processor, takes
// several times as long as such a method.
func HandlePrompt[P, R any](m *Mux, name string, access Access, waits func(params P) bool, fn func(ctx context.Context, c Caller, params P) (R, error)) {
	if waits == nil {
		waits = func(P) bool { return false }
	}
	handle(m, name, access, waits, fn)
}

func handle[P, R any](m *Mux, name string, access Access, waits func(params P) bool, fn func(ctx context.Context, c Caller, params P) (R, error)) {
	if name == "" {
		panic("control: a method needs a name")
	}
	if _, taken := m.methods[name]; taken {
		panic(fmt.Sprintf("control: method %q is registered twice", name))
	}
	if m.serving.Load() {
		panic(fmt.Sprintf("control: method %q is registered after serving began", name))
	}
	m.methods[name] = method{
		access: access,
		prepare: func(c Caller, raw json.RawMessage) (work, bool, int64) {
			var params P
			if len(raw) > 0 {
				if err := decodeStrict(raw, &params); err != nil {
					return failing(Errorf(CodeBadRequest, "parameters of %s: %v", name, err)), true, 0
				}
			}
			size := int64(len(raw))
			if s, ok := any(params).(sized); ok {
				size += s.size(c)
			}
			return func(ctx context.Context, c Caller) (json.RawMessage, error) {
				result, err := fn(ctx, c, params)
				if err != nil {
					return nil, err
				}
				out, err := encodeJSON(result)
				if err != nil {
					return nil, Errorf(CodeInternal, "encode result of %s: %v", name, err)
				}
				return out, nil
			}, !waits(params), size
		},
	}
}

// failing is work that fails.
func failing(err error) work {
	return func(context.Context, Caller) (json.RawMessage, error) { return nil, err }
}

// ServeControl answers one ioctl of caller on a directory of the mount. It
// fills output and returns the number of bytes that mean something, which is
// also the ioctl's result. A method that waits for something returns within a second,
// sooner if ctx ends; the others are answered at once, and are not interrupted.
//
// A number that is not [Command] is ENOTTY and must not be forwarded anywhere;
// buffers that are not this protocol's are EINVAL. Every other failure is an
// answer. It never returns EINTR: a client that sees EINTR knows that its
// request did not reach the daemon.
func (m *Mux) ServeControl(ctx context.Context, caller Caller, cmd uint32, input, output []byte) (n int32, errno syscall.Errno) {
	if cmd != Command {
		return 0, syscall.ENOTTY
	}
	if len(input) != BufferSize || len(output) != BufferSize {
		return 0, syscall.EINVAL
	}
	m.serving.Store(true)
	f, err := decodeFrame(input)
	if errors.Is(err, errMagic) {
		return 0, syscall.EINVAL
	}
	var out frame
	switch {
	case f.version != Version:
		out = m.reject(Errorf(CodeVersion, "daemon speaks protocol version %d, client %d", Version, f.version))
	case err != nil:
		out = m.reject(Errorf(CodeBadRequest, "%v", err))
	case f.kind == kindCall:
		out = m.serveCall(ctx, caller, f)
	case f.kind == kindNext:
		out = m.serveNext(ctx, caller, f)
	case f.kind == kindDrop:
		out = m.serveDrop(caller, f)
	default:
		out = m.reject(Errorf(CodeBadRequest, "frame kind %#x is not a request", uint8(f.kind)))
	}
	out.version = Version
	return int32(out.encode(output)), 0
}

// Released notes that nobody has an open description of a directory any more with which
// the mux was called. Methods that were called by it and still run have their say first: it
// would else be noted, and then be taken for open for ever.
func (m *Mux) Released(handle uint64) {
	m.mu.Lock()
	h, running := m.mu.held[handle]
	if running {
		h.released = true
		m.mu.held[handle] = h
	}
	m.mu.Unlock()
	if !running {
		m.released(handle)
	}
}

// holdLocked notes that a method runs that was called by an open description.
func (m *Mux) holdLocked(handle uint64) {
	if handle == 0 {
		return
	}
	h := m.mu.held[handle]
	h.running++
	m.mu.held[handle] = h
}

// unholdLocked notes that such a method has returned, and reports whether it was the last one
// of a description that was closed.
func (m *Mux) unholdLocked(handle uint64) (released bool) {
	h := m.mu.held[handle]
	if h.running > 1 {
		h.running--
		m.mu.held[handle] = h
		return false
	}
	delete(m.mu.held, handle)
	return h.released
}

// Close cancels the calls that run and waits for their methods to return.
// Requests that come later are answered with [CodeStopping].
func (m *Mux) Close() error {
	m.mu.Lock()
	m.mu.closed = true
	for _, c := range m.mu.calls { // those that were forgotten are cancelled already
		c.cancel()
	}
	m.mu.Unlock()
	m.handlers.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.mu.calls {
		if c.attending == 0 {
			m.forget(c)
		}
	}
	return nil
}

// privileged reports whether c is a user that is not to be locked out by others.
func (m *Mux) privileged(c Caller) bool { return c.UID == 0 || c.UID == m.cfg.OwnerUID }

// mayCall reports whether c may call a method with the given access.
func (m *Mux) mayCall(c Caller, a Access) bool { return a == Anyone || m.MayOwn(c) }

// MayOwn reports whether c may call [Owner] methods: a method that anyone may call
// tells others less.
func (m *Mux) MayOwn(c Caller) bool {
	return m.privileged(c) && (m.cfg.Trusted == nil || m.cfg.Trusted(c))
}

// hello tells a client whom it talks to.
func (m *Mux) hello(_ context.Context, c Caller, _ struct{}) (Hello, error) {
	h := Hello{Server: serverName, Protocol: Version, Version: m.cfg.Version}
	for name, method := range m.methods {
		if m.mayCall(c, method.access) {
			h.Methods = append(h.Methods, name)
		}
	}
	slices.Sort(h.Methods)
	return h, nil
}

// reject answers a request that reached no method.
func (m *Mux) reject(e *Error) frame {
	m.metrics.calls.WithLabelValues("", string(e.Code)).Inc()
	return frame{kind: kindLast, payload: errorDocument(e)}
}
