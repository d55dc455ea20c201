package oss

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	sdk "github.com/aliyun/aliyun-oss-go-sdk/oss"

	"github.com/pailfs/pailfs/oss/internal/oneline"
	"github.com/pailfs/pailfs/oss/limiter"
)

// request is any request but a ranged GET, in the shape of the SDK, which makes it but
// for a HEAD.
type request struct {
	op     operation
	method string
	// key is empty for requests about the bucket.
	key    string
	params map[string]any
	header map[string]string
	// body is sent if it is not nil.
	body Body
}

// response is a successful answer, read to its end.
type response struct {
	header http.Header
	body   []byte
	// sentCRC is the CRC-64 of the body that was sent.
	sentCRC uint64
}

const (
	// maxAnswer bounds the XML that is read. A page of 1000 of the longest keys,
	// percent-encoded, has less than 4 MiB.
	maxAnswer = 5 << 20
	// maxShortAnswer bounds it where no names are listed.
	maxShortAnswer = 256 << 10
)

// maxAnswer returns how much of the answer's body is read.
func (o operation) maxAnswer() int64 {
	switch o {
	case opList, opListParts, opListUploads, opDeleteMany:
		return maxAnswer
	default:
		return maxShortAnswer
	}
}

// do sends req until it succeeds, fails for good, or time is up. r must be made
// for it.
func (v *view) do(ctx context.Context, r *retrying, req *request) (*response, error) {
	for {
		resp, f := v.exchange(ctx, r, req)
		if f == nil {
			return resp, nil
		}
		if err := r.again(ctx, f); err != nil {
			return nil, err
		}
	}
}

// exchange sends req once.
func (v *view) exchange(ctx context.Context, r *retrying, req *request) (*response, *failure) {
	c := v.client
	p, err := c.limiter.Acquire(ctx, c.closing, v.class, r.deadline)
	if err != nil {
		return nil, unsent(req.op, req.key, err)
	}
	var o limiter.Observation
	defer func() { p.Release(o) }()

	a, err := c.begin(ctx, r)
	if err != nil {
		return nil, unsent(req.op, req.key, err)
	}
	defer a.end()
	k := c.cfg.Credentials.Keys()
	resp, header, err := v.send(a, r, req)
	o = observe(a, err, header)
	if req.op == opHead && o.Answered {
		o.Head = time.Since(a.began)
	}
	if err == nil {
		c.access.observe(r.key, nil)
		c.metrics.requests[req.op][outcomeOK].Inc()
		c.metrics.duration[req.op].Observe(time.Since(a.began).Seconds())
		return resp, nil
	}
	f := c.failed(req.op, req.key, err, a.cause(), header)
	f.keys = k
	o.Throttled = o.Throttled || f.outcome == outcomeThrottled
	if f.outcome == outcomeTimeout {
		c.latency[req.op.kind()].add(time.Since(a.began))
	}
	c.access.observe(r.key, f)
	c.metrics.requests[req.op][f.outcome].Inc()
	return nil, f
}

// observe is what the limiter learns of an answer.
func observe(a *attempt, err error, header http.Header) limiter.Observation {
	o := limiter.Observation{Answered: header != nil}
	if header != nil {
		o.Throttled = header.Get("X-Oss-Qos-Delay-Time") != ""
	}
	if err != nil && errors.Is(a.cause(), errFirstByte) {
		o.Answered = true // late is an answer, too
	}
	return o
}

// send sends req and reads the answer.
func (v *view) send(a *attempt, r *retrying, req *request) (resp *response, header http.Header, err error) {
	c := v.client
	resp = &response{}
	var body io.Reader
	if req.body != nil && req.body.Size() > 0 {
		patience := r.patience()
		s, err2 := newSending(req.body, func(left int64) { a.gave(left, c.timing.uploadStall, patience) })
		if err2 != nil {
			return nil, nil, err2
		}
		body = s
		defer func() {
			<-s.closed
			c.metrics.sent[req.op].Add(float64(s.sent))
			resp.sentCRC = s.crc
			if err != nil && s.err != nil {
				err = s.err
			}
		}()
	}
	var answer *sdk.Response
	if req.op == opHead {
		answer, err = c.askHead(a, req.key)
	} else {
		answer, err = c.conn.DoWithContext(a.ctx, req.method, c.cfg.Bucket, req.key, req.params, req.header, body, 0, nil)
	}
	if answer != nil {
		defer answer.Body.Close()
		header = answer.Headers
		took := a.head()
		c.latency[req.op.kind()].add(took)
		c.metrics.firstByte[req.op].Observe(took.Seconds())
	}
	if err != nil {
		if answer != nil {
			err = refusal(answer, err)
		}
		return resp, header, err
	}
	resp.header = answer.Headers
	most := req.op.maxAnswer()
	resp.body, err = io.ReadAll(io.LimitReader(answer.Body, most+1))
	if err == nil && int64(len(resp.body)) > most {
		err = fmt.Errorf("%w: more than %d bytes", errBadAnswer, most)
	}
	return resp, header, err
}

// refusal returns what the server said, in its own words if it has any.
func refusal(answer *sdk.Response, err error) error {
	if service, ok := errors.AsType[sdk.ServiceError](err); ok {
		return service
	}
	text, readErr := io.ReadAll(io.LimitReader(answer.Body, maxRefusal))
	if readErr != nil {
		return readErr
	}
	return serviceError(answer.StatusCode, answer.Headers, text)
}

// serviceError makes of an error answer what the SDK makes of one that OSS gave;
// of any other, such as a proxy's, its status and the beginning of its text.
func serviceError(status int, header http.Header, text []byte) sdk.ServiceError {
	var service sdk.ServiceError
	if location := header.Get("Location"); location != "" {
		service.Code = "Redirect"
		service.Message = "the answer points to " + location
	} else if len(text) > 0 && xml.Unmarshal(text, &service) != nil {
		service = sdk.ServiceError{Message: "not an answer of OSS: " + oneline.Of(string(text), 120)}
	}
	service.StatusCode = status
	return service
}
