package control

import (
	"context"
	"crypto/rand"
	"errors"
	"runtime/debug"
	"time"

	"github.com/pailfs/pailfs/prefetch/budget"
	"github.com/pailfs/pailfs/prefetch/session"
)

// call is a method that runs, or whose answer is still being fetched. The fields
// below done are guarded by Mux.mu.
type call struct {
	cursor cursor
	caller Caller
	method string
	began  time.Time
	cancel context.CancelFunc
	// done is closed when doc is set.
	done chan struct{}
	// answered is told how the call was answered.
	answered func(Code)

	// doc is the whole answer document.
	doc []byte
	// reserved is what doc takes of the answers of keeper.
	reserved int64
	keeper   budget.User
	// presumed says that nobody has looked yet whether the caller is a guest.
	presumed bool
	// attending is the number of ioctls that are being served for this call.
	attending int
	// forgotten says that the client cannot reach the call any more.
	forgotten bool
	// idle forgets the call when nobody has asked after it since idleSince.
	idle      *time.Timer
	idleSince time.Time
}

// randomCursor returns 16 bytes that nobody can guess.
func randomCursor() (c cursor) {
	// crypto/rand.Read never fails: it would rather end the process.
	_, _ = rand.Read(c[:])
	return c
}

// serveCall starts a call and attends it.
func (m *Mux) serveCall(ctx context.Context, caller Caller, f frame) frame {
	var req request
	if err := decodeStrict(f.payload, &req); err != nil {
		return m.reject(Errorf(CodeBadRequest, "request: %v", err))
	}
	method, ok := m.methods[req.Method]
	if !ok {
		return m.reject(Errorf(CodeUnknownMethod, "the daemon has no method %q", req.Method))
	}
	// They are decoded now: the ioctl's buffer is not ours after the answer, while the
	// method may run on.
	do, prompt, size := method.prepare(caller, req.Params)
	answered := m.cfg.Called(ctx, caller, req.Method, req.Params)
	// To find out who it is costs more than a prompt method: until it is refused as a guest,
	// a caller is presumed to be one.
	presumed := prompt && method.access == Anyone && m.privileged(caller)
	if presumed {
		caller.Guest = true
	} else if !prompt || method.access == Owner {
		caller = m.known(caller)
	}
	if !m.mayCall(caller, method.access) {
		m.refused(caller, req.Method, answered)
		return m.reject(Errorf(CodeRefused, "user %d may not call %s: only root and user %d may",
			caller.UID, req.Method, m.cfg.OwnerUID))
	}
	c, callCtx, refusal := m.admit(ctx, caller, req.Method, size)
	if presumed && errors.Is(refusal, &Error{Code: CodeOverQuota}) {
		presumed = false
		if caller = m.known(caller); !caller.Guest {
			c, callCtx, refusal = m.admit(ctx, caller, req.Method, size)
		}
	}
	if refusal != nil {
		e := errorOf(refusal)
		answered(e.Code)
		return m.reject(e)
	}
	c.presumed, c.answered = presumed, answered
	work := func() {
		defer m.handlers.Done()
		defer m.cfg.Ledger.Give(c.caller.User(), budget.Requests, size)
		defer c.cancel()
		m.run(callCtx, c, do)
	}
	if prompt {
		work()
	} else {
		go work()
	}
	return m.attend(ctx, c, 0)
}

// refused tells of a call that the caller may not make.
func (m *Mux) refused(c Caller, method string, answered func(Code)) {
	if m.refusals.Allow() {
		m.log.Info("control call refused", "method", method, "uid", c.UID, "pid", c.PID)
	}
	answered(CodeRefused)
}

// known returns a caller with its process and groups, and whether it is a guest.
func (m *Mux) known(c Caller) Caller {
	c.PID, c.Groups = m.processOf(c)
	c.Guest = m.privileged(c) && !m.MayOwn(c)
	return c
}

// processOf returns the caller's process and its groups, as far as they can be told. The
// thread waits in the ioctl meanwhile.
func (m *Mux) processOf(c Caller) (pid uint32, groups session.Groups) {
	if m.cfg.ProcessOf == nil || c.TID == 0 {
		return c.PID, c.Groups
	}
	pid, ids := m.cfg.ProcessOf(c.TID)
	return pid, session.GroupsOf(ids)
}

// serveNext attends a call again.
func (m *Mux) serveNext(ctx context.Context, caller Caller, f frame) frame {
	m.mu.Lock()
	c := m.find(caller, f.cursor)
	if c == nil {
		m.mu.Unlock()
		return m.reject(errStaleCursor())
	}
	c.attending++
	if c.idle != nil {
		c.idle.Stop()
	}
	m.mu.Unlock()
	return m.attend(ctx, c, int64(f.offset))
}

// serveDrop cancels and forgets a call.
func (m *Mux) serveDrop(caller Caller, f frame) frame {
	m.mu.Lock()
	c := m.find(caller, f.cursor)
	if c == nil {
		m.mu.Unlock()
		return m.reject(errStaleCursor())
	}
	m.forget(c)
	m.mu.Unlock()
	return frame{kind: kindLast, payload: []byte(`{"result":null}`)}
}

// errStaleCursor does not tell a foreign cursor from an unknown one.
func errStaleCursor() *Error {
	return Errorf(CodeStaleCursor, "no call of this user has this cursor; it ended, was dropped or was not asked after for %v", idleLimit)
}

// find returns the call that cursor names, if it belongs to the caller's user.
// A process may pass a cursor on to its children, so the pid does not count.
// m.mu must be held.
func (m *Mux) find(caller Caller, id cursor) *call {
	c := m.mu.calls[id]
	if c == nil || c.caller.UID != caller.UID {
		return nil
	}
	return c
}

// admit makes a call if the limits allow one more, whose parameters take size. Its method
// must be run with the context that is returned, and m.handlers.Done called and size given back
// after it; it is attended once already. The method may outlive the ioctl: its context does not
// end with ctx, but when the call is forgotten or the mux is closed.
func (m *Mux) admit(ctx context.Context, caller Caller, method string, size int64) (*call, context.Context, error) {
	c := &call{
		cursor:    m.newCursor(),
		caller:    caller,
		method:    method,
		began:     time.Now(),
		done:      make(chan struct{}),
		attending: 1,
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return nil, nil, Errorf(CodeStopping, "the daemon is stopping")
	}
	if err := m.cfg.Ledger.Take(caller.User(), budget.Calls, 1); err != nil {
		return nil, nil, errorOf(err)
	}
	if err := m.cfg.Ledger.Take(caller.User(), budget.Requests, size); err != nil {
		m.cfg.Ledger.Give(caller.User(), budget.Calls, 1)
		return nil, nil, errorOf(err)
	}
	m.metrics.running.Inc()
	m.mu.calls[c.cursor] = c
	m.holdLocked(caller.Handle)
	m.handlers.Add(1)
	ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return c, ctx, nil
}

// run calls the method and keeps its answer.
func (m *Mux) run(ctx context.Context, c *call, do work) {
	var (
		began = time.Now()
		doc   []byte
		code  Code
	)
	defer func() {
		if doc == nil {
			// A panic, or a method that ended its goroutine, must neither kill the
			// daemon nor leave the client waiting.
			doc, code = m.mistake(c, recover())
		}
		m.metrics.duration.WithLabelValues(c.method).Observe(time.Since(began).Seconds())
		m.finish(c, doc, code)
	}()
	doc, code = m.document(ctx, c, do)
}

// mistake logs that a method did not return and makes its answer.
func (m *Mux) mistake(c *call, reason any) ([]byte, Code) {
	m.metrics.panics.Inc()
	m.log.Error("control method panicked", "method", c.method, "uid", c.caller.UID, "panic", reason, "stack", string(debug.Stack()))
	return errorDocument(Errorf(CodeInternal, "%s failed by a mistake in the daemon, which has logged it", c.method)), CodeInternal
}

// finish keeps the answer of c for whoever attends it, after what was released during c is
// noted.
func (m *Mux) finish(c *call, doc []byte, code Code) {
	// A small answer leaves with the ioctl that waits for it, so only large ones
	// can be held for long; but it costs nothing to count them all.
	if err := m.reserve(c, int64(len(doc))); err != nil {
		code = CodeOverQuota
		doc = errorDocument(Errorf(code, "%s was done, and its answer of %d bytes cannot be kept: %v", c.method, len(doc), err))
	}
	if code == CodeRefused {
		m.refused(c.caller, c.method, c.answered)
	} else {
		c.answered(code)
	}
	m.mu.Lock()
	released := m.unholdLocked(c.caller.Handle)
	m.mu.Unlock()
	if released {
		m.released(c.caller.Handle)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c.doc = doc
	m.metrics.calls.WithLabelValues(c.method, string(code)).Inc()
	close(c.done)
	if c.forgotten {
		m.release(c)
	}
}

// codeOK labels calls that ended with a result.
const codeOK Code = "ok"

// document runs the method and returns its answer document.
func (m *Mux) document(ctx context.Context, c *call, do work) ([]byte, Code) {
	result, err := do(ctx, c.caller)
	if err != nil {
		e := errorOf(err)
		return errorDocument(e), e.Code
	}
	doc := make([]byte, 0, len(result)+len(`{"result":}`))
	doc = append(doc, `{"result":`...)
	doc = append(doc, result...)
	doc = append(doc, '}')
	if int64(len(doc)) > m.cfg.MaxAnswerBytes {
		e := Errorf(CodeTooLarge, "the answer of %s has %d bytes, the limit is %d", c.method, len(doc), m.cfg.MaxAnswerBytes)
		return errorDocument(e), e.Code
	}
	return doc, codeOK
}

// attend waits for the call, though not long, and answers with what there is. Where too
// many wait already it answers at once, and says when to ask again.
func (m *Mux) attend(ctx context.Context, c *call, offset int64) frame {
	pause := time.Duration(0)
	select {
	case <-c.done:
	default:
		if m.cfg.Ledger.Take(c.caller.User(), budget.Waits, 1) != nil {
			pause = min(max(time.Since(c.began)/4, leastPause), mostPause)
			break
		}
		defer m.cfg.Ledger.Give(c.caller.User(), budget.Waits, 1)
		timer := time.NewTimer(waitLimit)
		select {
		case <-c.done:
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	c.attending--
	if c.forgotten {
		return m.reject(errStaleCursor())
	}
	out := frame{kind: kindWait, offset: uint32(pause.Milliseconds()), cursor: c.cursor}
	select {
	case <-c.done:
		rest := int64(len(c.doc)) - offset
		switch {
		case rest <= 0:
			out = m.reject(Errorf(CodeBadRequest, "offset %d is beyond the answer, which has %d bytes", offset, len(c.doc)))
		case rest <= MaxPayload:
			out = frame{kind: kindLast, offset: uint32(offset), payload: c.doc[offset:]}
			m.forget(c)
			return out
		default:
			out = frame{kind: kindMore, offset: uint32(offset), cursor: c.cursor, payload: c.doc[offset : offset+MaxPayload]}
		}
	default:
	}
	if c.attending == 0 {
		m.startIdle(c)
	}
	return out
}

// startIdle forgets the call if nobody asks after it. m.mu must be held.
func (m *Mux) startIdle(c *call) {
	if m.mu.closed {
		m.forget(c)
		return
	}
	c.idleSince = time.Now()
	if c.idle != nil {
		c.idle.Reset(idleLimit)
		return
	}
	c.idle = time.AfterFunc(idleLimit, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		// The timer may have fired just before it was stopped and set anew.
		if c.attending > 0 || c.forgotten || time.Since(c.idleSince) < idleLimit {
			return
		}
		m.metrics.expired.Inc()
		m.log.Info("control call expired", "method", c.method, "uid", c.caller.UID, "pid", c.caller.PID)
		m.forget(c)
	})
}

// forget makes the call unreachable and cancels it. What it holds is released
// now, or when its method returns. m.mu must be held.
func (m *Mux) forget(c *call) {
	if c.forgotten {
		return
	}
	c.forgotten = true
	delete(m.mu.calls, c.cursor)
	if c.idle != nil {
		c.idle.Stop()
	}
	c.cancel()
	select {
	case <-c.done:
		m.release(c)
	default:
	}
}

// reserve takes n bytes for the answer of c, before anybody can see that it is done. It may
// ask who the caller is, and waits for no lock of the mux.
func (m *Mux) reserve(c *call, n int64) error {
	c.keeper = c.caller.User()
	err := m.cfg.Ledger.Take(c.keeper, budget.Answers, n)
	if err != nil && c.presumed {
		c.keeper = m.known(c.caller).User()
		err = m.cfg.Ledger.Take(c.keeper, budget.Answers, n)
	}
	if err != nil {
		return err
	}
	c.reserved = n
	m.metrics.stored.Add(float64(n))
	return nil
}

// release gives back what c holds of the user's calls and answers. m.mu must be held.
func (m *Mux) release(c *call) {
	m.cfg.Ledger.Give(c.caller.User(), budget.Calls, 1)
	m.cfg.Ledger.Give(c.keeper, budget.Answers, c.reserved)
	m.metrics.running.Dec()
	m.metrics.stored.Sub(float64(c.reserved))
}
