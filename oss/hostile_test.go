package oss

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// hostility is one way in which what answers is not OSS: it writes to w, for as long
// as w takes it, what is no right answer to r.
type hostility struct {
	answer func(w *bufio.Writer, r *http.Request) error
	// slow are the calls for which the answer might be that of a service or a network
	// that has trouble, which may pass: they are repeated until their deadline.
	slow []string
}

// text is an answer that ends.
func text(format string, args ...any) func(*bufio.Writer, *http.Request) error {
	return func(w *bufio.Writer, r *http.Request) error {
		_, err := w.WriteString(fit(fmt.Sprintf(format, args...), r))
		return err
	}
}

// fit makes the head of a right answer that of the range that r asks for: a call
// that got something asks for the rest.
func fit(answer string, r *http.Request) string {
	if r.Header.Get("Range") == "" {
		return answer
	}
	from, until := askedRange(r)
	answer = strings.Replace(answer, "bytes 1000-1099", fmt.Sprintf("bytes %d-%d", from, until-1), 1)
	return strings.Replace(answer, "Content-Length: 100\r", fmt.Sprintf("Content-Length: %d\r", until-from), 1)
}

// endless is an answer that begins with head and goes on with unit.
func endless(head, unit string) func(*bufio.Writer, *http.Request) error {
	return func(w *bufio.Writer, r *http.Request) error {
		_, err := w.WriteString(fit(head, r))
		for err == nil {
			_, err = w.WriteString(unit)
		}
		return err
	}
}

// dripping is the same, a byte every three seconds.
func dripping(head, unit string) func(*bufio.Writer, *http.Request) error {
	return func(w *bufio.Writer, r *http.Request) error {
		_, err := w.WriteString(fit(head, r))
		for i := 0; err == nil; i++ {
			if err = w.WriteByte(unit[i%len(unit)]); err == nil {
				err = w.Flush()
			}
			time.Sleep(3 * time.Second)
		}
		return err
	}
}

// identity is what every right answer about object says of it.
const identity = "ETag: \"ABCDEF\"\r\nLast-Modified: Thu, 01 Jan 1970 00:16:40 GMT\r\nDate: Thu, 01 Jan 1970 00:16:40 GMT\r\n"

// ranged is the head of a right answer to the ranged GET of askHostile.
const ranged = "HTTP/1.1 206 Partial Content\r\n" + identity + "Content-Range: bytes 1000-1099/1048576\r\n"

const okHead = "HTTP/1.1 200 OK\r\n" + identity

var every = []string{"get", "head", "list", "put"}

var hostilities = map[string]hostility{
	"one header of a megabyte":       {answer: text("HTTP/1.1 200 OK\r\nX-Oss-Meta-A: %s\r\n\r\n", strings.Repeat("a", 1<<20))},
	"headers without an end":         {answer: endless("HTTP/1.1 200 OK\r\n", "X-Oss-Meta-A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n")},
	"a header without an end":        {answer: endless("HTTP/1.1 200 OK\r\nX-Oss-Meta-A: ", "aaaaaaaaaaaaaaaa")},
	"a status line without an end":   {answer: endless("HTTP/1.1 200 ", "OK")},
	"early hints without an end":     {answer: endless("", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")},
	"another protocol":               {answer: text("SSH-2.0-OpenSSH_9.9\r\n\r\n")},
	"a status of words":              {answer: text("HTTP/1.1 fine OK\r\n\r\n")},
	"a version of the future":        {answer: text("HTTP/9.9 200 OK\r\n%sContent-Length: 0\r\n\r\n", identity)},
	"a header without a colon":       {answer: text("HTTP/1.1 200 OK\r\nnonsense\r\n\r\n")},
	"a header with a zero byte":      {answer: text("HTTP/1.1 200 OK\r\nETag: \"A\x00B\"\r\nContent-Length: 0\r\n\r\n")},
	"a length of words":              {answer: text("%sContent-Length: many\r\n\r\n", okHead)},
	"a negative length":              {answer: text("%sContent-Length: -5\r\n\r\n", okHead)},
	"two lengths":                    {answer: text("%sContent-Length: 5\r\nContent-Length: 100\r\n\r\n", okHead)},
	"a length beyond all numbers":    {answer: text("%sContent-Length: 99999999999999999999999\r\n\r\n", okHead)},
	"an encoding nobody knows":       {answer: text("%sTransfer-Encoding: gzip\r\n\r\n", okHead)},
	"an answer of 99 bytes for 100":  {answer: text("%sContent-Length: 99\r\n\r\n%99d", ranged, 1)},
	"an answer of a gigabyte":        {answer: endless(ranged+"Content-Length: 1073741824\r\n\r\n", "0123456789abcdef")},
	"another range":                  {answer: text("HTTP/1.1 206 Partial Content\r\n%sContent-Range: bytes 2000-2099/1048576\r\nContent-Length: 100\r\n\r\n%100d", identity, 1)},
	"a range of words":               {answer: text("HTTP/1.1 206 Partial Content\r\n%sContent-Range: bytes a-b/c\r\nContent-Length: 100\r\n\r\n%100d", identity, 1)},
	"chunks without an end":          {answer: endless(okHead+"Transfer-Encoding: chunked\r\n\r\n", "400\r\n"+strings.Repeat("<a/>", 256)+"\r\n")},
	"a chunk of words":               {answer: text("%sTransfer-Encoding: chunked\r\n\r\nmany\r\nabc\r\n", okHead)},
	"a chunk beyond all numbers":     {answer: text("%sTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\nabc\r\n", okHead)},
	"the extension of a chunk":       {answer: endless(okHead+"Transfer-Encoding: chunked\r\n\r\n1;a=", "bbbbbbbbbbbbbbbb")},
	"a trailer without an end":       {answer: endless(okHead+"Transfer-Encoding: chunked\r\n\r\n0\r\n", "A: bbbbbbbbbbbbbbbb\r\n")},
	"no XML":                         {answer: text("%sContent-Length: 9\r\n\r\n<a><b></a", okHead)},
	"deep XML":                       {answer: text("%sContent-Length: 300000\r\n\r\n%s", okHead, strings.Repeat("<a>", 100000))},
	"a page of 200,000 names":        {answer: page(200_000)},
	"a name outside of the prefix":   {answer: text("%sTransfer-Encoding: chunked\r\n\r\n%s", okHead, chunk("<ListBucketResult><Contents><Key>etc/passwd</Key><Size>1</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents></ListBucketResult>"))},
	"a next page that is none":       {answer: text("%sTransfer-Encoding: chunked\r\n\r\n%s", okHead, chunk("<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"))},
	"a refusal without an end":       {answer: endless("HTTP/1.1 400 Bad Request\r\nContent-Length: 1073741824\r\n\r\n", "<Error>0123456789abcdef")},
	"a refusal of broken XML":        {answer: text("HTTP/1.1 400 Bad Request\r\nContent-Length: 7\r\n\r\n<Error>")},
	"a status of 999":                {answer: text("HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n")},
	"another protocol is offered":    {answer: text("HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n")},
	"nothing, not even content":      {answer: text("HTTP/1.1 204 No Content\r\n\r\n")},
	"a redirection to itself":        {answer: text("HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n")},
	"a silent end":                   {answer: text(""), slow: every},
	"an end within the head":         {answer: text("HTTP/1.1 206 Partial Content\r\nETag: "), slow: every},
	"an end within the body":         {answer: text("%sContent-Length: 100\r\n\r\n", ranged), slow: every},
	"a head of a byte at a time":     {answer: dripping("", "HTTP/1.1 200 OK\r\nX-Oss-Meta-A: "), slow: every},
	"a body of a byte at a time":     {answer: dripping(ranged+"Content-Length: 100\r\n\r\n", "0123456789"), slow: every},
	"a chunk of a byte at a time":    {answer: dripping(okHead+"Transfer-Encoding: chunked\r\n\r\n100000\r\n", "<a/>"), slow: []string{"list", "put"}},
	"a refusal of a byte at a time":  {answer: dripping("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 100\r\n\r\n", "<Error>"), slow: every},
	"busy, and a wait of a century":  {answer: text("HTTP/1.1 503 Busy\r\nRetry-After: 3153600000\r\nX-Oss-Qos-Delay-Time: 9223372036854775807\r\nContent-Length: 0\r\n\r\n"), slow: every},
	"an error of the server, always": {answer: text("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"), slow: every},
}

// page is a listing of n names.
func page(n int) func(*bufio.Writer, *http.Request) error {
	return func(w *bufio.Writer, _ *http.Request) error {
		const name = "<Contents><Key>dir/a</Key><Size>1</Size><ETag>A</ETag><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
		_, err := fmt.Fprintf(w, "%sTransfer-Encoding: chunked\r\n\r\n%x\r\n<ListBucketResult>", okHead, len("<ListBucketResult>")+n*len(name)+len("</ListBucketResult>"))
		for range n {
			if err != nil {
				return err
			}
			_, err = w.WriteString(name)
		}
		_, err = w.WriteString("</ListBucketResult>\r\n0\r\n\r\n")
		return err
	}
}

// chunk is a body of one chunk.
func chunk(body string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body) }

// hostileCalls are the requests that meet each hostility.
var hostileCalls = map[string]func(b *bubble) error{
	"get": func(b *bubble) error {
		return b.readSome(b.Context(), Demand)
	},
	"head": func(b *bubble) error {
		_, err := b.client.As(Demand).Head(b.Context(), object.Key)
		return err
	},
	"list": func(b *bubble) error {
		_, err := b.client.As(Demand).List(b.Context(), ListRequest{Prefix: "dir/", MaxKeys: 1000})
		return err
	},
	"put": func(b *bubble) error {
		_, err := b.client.As(Demand).Put(b.Context(), object.Key, bytes.NewReader([]byte("content")), PutOptions{})
		return err
	},
}

// counted counts what the other side takes.
type counted struct {
	io.Writer
	n *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// mostTaken is how much of one answer the client may take.
const mostTaken = maxAnswer + 1<<20

func TestHostileAnswersEndInTimeAndAreNotTakenForAnOutage(t *testing.T) {
	for name, hostile := range hostilities {
		t.Run(name, func(t *testing.T) {
			for call, ask := range hostileCalls {
				synctest.Test(t, func(t *testing.T) {
					var most atomic.Int64
					b := newBubble(t, func(w http.ResponseWriter, r *http.Request, _ int) {
						_, _ = io.Copy(io.Discard, r.Body) // a client that cannot send sees no answer
						conn, both, err := w.(http.Hijacker).Hijack()
						if err != nil {
							t.Error(err)
							return
						}
						drained := make(chan struct{})
						go func() {
							defer close(drained)
							_, _ = io.Copy(io.Discard, both) // until the connection ends
						}()
						var taken atomic.Int64
						out := bufio.NewWriterSize(counted{conn, &taken}, 16<<10)
						if hostile.answer(out, r) == nil {
							_ = out.Flush() // the client may have gone
						}
						_ = conn.Close()
						<-drained
						most.Store(max(most.Load(), taken.Load()))
					})
					began := time.Now()
					err := ask(b)
					if took := time.Since(began); took > (Deadlines{}).of(Demand)+time.Second {
						t.Errorf("%s: ended after %s", call, took)
					}
					outage := errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrBadAnswer)
					if err != nil && outage != slices.Contains(hostile.slow, call) {
						t.Errorf("%s: taken for an outage: %v: %v", call, outage, err)
					}
					if err != nil && len(err.Error()) > 2000 {
						t.Errorf("%s: an error of %d bytes", call, len(err.Error()))
					}
					synctest.Wait()
					if n := most.Load(); n > mostTaken {
						t.Errorf("%s: %d bytes of one answer were taken", call, n)
					}
					t.Logf("%s after %s: %v", call, time.Since(began).Round(time.Millisecond), err)
				})
			}
		})
	}
}

// A drip is what a network in trouble looks like: the call is repeated, ends with its deadline
// all the same, and may be tried again by whoever made it.
func TestReadOfADrippingBodyEndsWithItsDeadline(t *testing.T) {
	const size = 8 << 20
	for name, drip := range map[string]struct {
		bytes int
		pause time.Duration
	}{
		"a byte a second":                {1, time.Second},
		"a byte before each stall time":  {1, 1900 * time.Millisecond},
		"just enough to count as moving": {stallStep, 1900 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := object
				o.Size = size
				b := newBubble(t, func(w http.ResponseWriter, r *http.Request, _ int) {
					from, until := askedRange(r)
					w.Header().Set("ETag", `"`+o.ETag+`"`)
					w.Header().Set("Last-Modified", "Thu, 01 Jan 1970 00:16:40 GMT")
					w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, until-1, size))
					w.Header().Set("Content-Length", strconv.Itoa(int(until-from)))
					w.WriteHeader(http.StatusPartialContent)
					for at := from; at < until && r.Context().Err() == nil; at += int64(drip.bytes) {
						if _, err := w.Write(make([]byte, min(int64(drip.bytes), until-at))); err != nil {
							return
						}
						_ = http.NewResponseController(w).Flush() // the client may have gone
						time.Sleep(drip.pause)
					}
				})
				began := time.Now()
				_, err := b.client.As(Demand).ReadRange(t.Context(), RangeRequest{Object: o, Buffer: make([]byte, size)})
				// A second is allowed for each MiB.
				if took, most := time.Since(began), (Deadlines{}).of(Demand)+size/leastPace*time.Second; took > most {
					t.Errorf("ended after %s, want %s at most", took, most)
				}
				if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrBadAnswer) {
					t.Errorf("the error is %v", err)
				}
			})
		})
	}
}
