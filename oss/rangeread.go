package oss

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pailfs/pailfs/oss/credentials"
	"github.com/pailfs/pailfs/oss/internal/oneline"
	"github.com/pailfs/pailfs/oss/limiter"
)

// announceStep is how many bytes at least, but for the last, Arrived is told of
// at once: often enough for a reader that follows, rare enough to cost nothing.
const announceStep = 64 << 10

// ReadRange implements [RangeReader].
func (v *view) ReadRange(ctx context.Context, r RangeRequest) (RangeResult, error) {
	o := r.Object
	if err := checkKey(opGet, o.Key); err != nil {
		return RangeResult{}, err
	}
	switch {
	case o.ETag == "":
		return RangeResult{}, invalid(opGet, o.Key, "the object has no etag, so its version cannot be asked for")
	case len(r.Buffer) == 0:
		return RangeResult{}, invalid(opGet, o.Key, "the buffer is empty")
	case r.Offset < 0 || r.Offset > o.Size-int64(len(r.Buffer)):
		return RangeResult{}, invalid(opGet, o.Key, fmt.Sprintf("bytes %d to %d are not within %d", r.Offset, r.Offset+int64(len(r.Buffer)), o.Size))
	}
	reader := &rangeReader{
		view:     v,
		ctx:      ctx,
		request:  r,
		retrying: v.retrying(opGet, o.Key, int64(len(r.Buffer))),
	}
	return reader.read()
}

// rangeReader fills one buffer, with as many requests as it takes. What has
// arrived stays: each request asks for the rest.
type rangeReader struct {
	view     *view
	ctx      context.Context //nolint:containedctx // the context of the one call that this is the state of
	request  RangeRequest
	retrying *retrying
	// got is how much of the buffer is final, announced how much was told.
	got, announced int
	result         RangeResult
}

func (r *rangeReader) read() (RangeResult, error) {
	for {
		before := r.got
		f := r.once()
		if f == nil {
			return r.result, nil
		}
		if r.got > before {
			r.retrying.progressed()
		}
		if err := r.retrying.again(r.ctx, f); err != nil {
			return RangeResult{}, err
		}
	}
}

// once sends one request, or two if the first is late, and reads what comes.
func (r *rangeReader) once() *failure {
	c := r.view.client
	class := limiter.Effective(r.ctx, r.view.class)
	p, err := c.limiter.Acquire(r.ctx, c.closing, class, r.retrying.deadline)
	if err != nil {
		return unsent(opGet, r.request.Object.Key, err)
	}
	a, f := r.attempt(p)
	if f != nil {
		return f
	}
	promotion, delay := limiter.PromotionOf(r.ctx), c.hedgeDelay()
	if class == Demand {
		c.hedging.earn()
	}
	if delay > 0 && (class == Demand || promotion != nil) {
		h := &hedge{reader: r, first: a, due: time.Now().Add(delay), done: make(chan struct{})}
		if class == Demand {
			h.start()
		} else {
			promotion.Enter(h)
			defer promotion.Leave(h)
		}
		a, f = h.run()
	} else {
		f = a.open()
	}
	if f == nil {
		f = r.receive(a)
	}
	a.finish(f)
	return f
}

// secondPermit returns a permit for a hedge if there is budget and room for one.
func (r *rangeReader) secondPermit() (limiter.Permit, bool) {
	c := r.view.client
	if !c.hedging.spend() {
		return limiter.Permit{}, false
	}
	p, ok := c.limiter.TryAcquire(Demand)
	if !ok {
		c.hedging.refund()
	}
	return p, ok
}

// attempt prepares a request for what is missing. It takes over the permit.
func (r *rangeReader) attempt(p limiter.Permit) (*getAttempt, *failure) {
	a, err := r.view.client.begin(r.ctx, r.retrying)
	if err != nil {
		p.Release(limiter.Observation{})
		return nil, unsent(opGet, r.request.Object.Key, err)
	}
	from := r.request.Offset + int64(r.got)
	return &getAttempt{
		attempt: a,
		permit:  p,
		object:  &r.request.Object,
		from:    from,
		until:   r.request.Offset + int64(len(r.request.Buffer)),
	}, nil
}

// getAttempt is one ranged GET: open, then read, then finish.
type getAttempt struct {
	*attempt
	permit      limiter.Permit
	object      *Object
	from, until int64

	keys     *credentials.Keys
	answer   *http.Response
	observed limiter.Observation
	received int64
}

// open sends the request and checks the head of the answer. On failure the
// answer has been closed.
func (g *getAttempt) open() *failure {
	c := g.client
	g.keys = c.cfg.Credentials.Keys()
	span := make([]byte, 0, 48)
	span = append(span, "bytes="...)
	span = strconv.AppendInt(span, g.from, 10)
	span = append(span, '-')
	span = strconv.AppendInt(span, g.until-1, 10)
	req := c.reads.get(g.object.Key, g.etag(), string(span), g.keys)
	answer, err := c.transport.RoundTrip(req.WithContext(g.ctx))
	if err != nil {
		return g.fail(err, nil)
	}
	took := g.head()
	g.observed.Answered = true
	g.observed.Throttled = answer.Header.Get("X-Oss-Qos-Delay-Time") != ""
	if answer.StatusCode/100 == 2 {
		g.observed.FirstByte = took
		c.latency[kindRead].add(took)
		c.metrics.firstByte[opGet].Observe(took.Seconds())
	}
	if err := g.check(answer); err != nil {
		f := g.fail(err, answer.Header)
		_ = answer.Body.Close()
		return f
	}
	g.answer = answer
	return nil
}

// etag is the version's tag, whoever made the Object.
func (g *getAttempt) etag() string { return normalETag(g.object.ETag) }

// fail classifies err with what this attempt knows.
func (g *getAttempt) fail(err error, header http.Header) *failure {
	f := g.client.failed(opGet, g.object.Key, err, g.cause(), header)
	f.keys = g.keys
	return f
}

// check makes sure that the answer is exactly what was asked for: the same
// version, the same bytes, no more and no less.
func (g *getAttempt) check(answer *http.Response) error {
	switch answer.StatusCode {
	case http.StatusPartialContent, http.StatusOK:
	case http.StatusRequestedRangeNotSatisfiable:
		return g.changed("it is shorter now")
	default:
		return g.refused(answer)
	}
	switch etag := normalETag(answer.Header.Get("ETag")); etag {
	case g.etag():
	case "":
		return fmt.Errorf("%w: no etag", errBadAnswer)
	default:
		return g.changed("its etag is " + oneline.Of(etag, 80) + " now")
	}
	if answer.StatusCode == http.StatusPartialContent {
		from, until, size, err := parseContentRange(answer.Header.Get("Content-Range"))
		switch {
		case err != nil:
			return err
		case size != g.object.Size:
			return g.changed(fmt.Sprintf("it has %d bytes now, not %d", size, g.object.Size))
		case from != g.from || until != g.until:
			return fmt.Errorf("%w: asked for bytes %d-%d, got %d-%d", errBadAnswer, g.from, g.until-1, from, until-1)
		}
	} else if g.from != 0 || g.until != g.object.Size {
		// The whole object is a right answer only to a range that is the whole.
		return fmt.Errorf("%w: asked for bytes %d-%d, got the whole object", errBadAnswer, g.from, g.until-1)
	}
	if answer.ContentLength != g.until-g.from {
		return fmt.Errorf("%w: asked for %d bytes, got a length of %d", errBadAnswer, g.until-g.from, answer.ContentLength)
	}
	return nil
}

// changed is the failure of a read whose version is gone.
func (g *getAttempt) changed(how string) *failure {
	return &failure{op: opGet, key: g.object.Key, kind: ErrChanged, outcome: outcomeChanged, cause: errors.New(how)}
}

// refused turns an error answer into the SDK's error, and reads it to its end so
// that the connection can be used again.
func (g *getAttempt) refused(answer *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxRefusal))
	if err != nil {
		return err
	}
	return serviceError(answer.StatusCode, answer.Header, text)
}

// parseContentRange reads "bytes 0-99/1234" as a half-open span and the size.
func parseContentRange(text string) (from, until, size int64, err error) {
	rest, ok1 := strings.CutPrefix(text, "bytes ")
	first, rest, ok2 := strings.Cut(rest, "-")
	last, total, ok3 := strings.Cut(rest, "/")
	a, err1 := strconv.ParseUint(first, 10, 63)
	b, err2 := strconv.ParseUint(last, 10, 63)
	n, err3 := strconv.ParseUint(total, 10, 63)
	if !ok1 || !ok2 || !ok3 || errors.Join(err1, err2, err3) != nil || a > b || b >= n {
		return 0, 0, 0, fmt.Errorf("%w: content range %q", errBadAnswer, oneline.Of(text, 80))
	}
	return int64(a), int64(b) + 1, int64(n), nil
}

// receive reads the body into the buffer and tells of what has come.
func (r *rangeReader) receive(a *getAttempt) *failure {
	buffer := r.request.Buffer
	for r.got < len(buffer) {
		n, err := a.answer.Body.Read(buffer[r.got:])
		if n > 0 {
			r.got += n
			a.received += int64(n)
			a.took(n)
			if r.got-r.announced >= announceStep && r.got < len(buffer) {
				r.announce()
			}
		}
		if err != nil && r.got < len(buffer) {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			r.announce()
			return a.fail(fmt.Errorf("body ended after %d bytes of %d: %w", a.received, a.until-a.from, err), a.answer.Header)
		}
	}
	r.announce()
	if text := a.answer.Header.Get("X-Oss-Hash-Crc64ecma"); text != "" {
		if crc, err := strconv.ParseUint(text, 10, 64); err == nil {
			r.result = RangeResult{CRC64: crc, HasCRC64: true}
		}
	}
	return nil
}

// announce tells of what has come since the last time.
func (r *rangeReader) announce() {
	if r.got == r.announced {
		return
	}
	r.announced = r.got
	if r.request.Arrived != nil {
		r.request.Arrived(r.got)
	}
}

// finish closes the answer, returns the permit and counts.
func (g *getAttempt) finish(f *failure) {
	c := g.client
	if g.answer != nil {
		_ = g.answer.Body.Close()
		c.metrics.received[opGet].Add(float64(g.received))
	}
	result := outcomeOK
	if f != nil {
		result = f.outcome
		g.observed.Throttled = g.observed.Throttled || f.outcome == outcomeThrottled
		if f.outcome == outcomeTimeout && g.answer == nil {
			// The sample is cut off, but without it a service that has become slow would
			// never be believed.
			c.latency[kindRead].add(time.Since(g.began))
			g.observed.Answered = true
			g.observed.FirstByte = time.Since(g.began)
		}
	}
	c.access.observe(g.object.Key, f)
	c.metrics.requests[opGet][result].Inc()
	c.metrics.duration[opGet].Observe(time.Since(g.began).Seconds())
	g.permit.Release(g.observed)
	g.end()
}
