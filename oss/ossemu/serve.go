package ossemu

import (
	"errors"
	"io"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/pailfs/pailfs/oss/ossemu/shape"
)

// ServeHTTP answers one request to the object service.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.life.RLock()
	defer s.life.RUnlock()
	if s.life.closed {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	q := &request{Server: s, r: r, w: w, began: time.Now(), id: s.newRequestID()}
	s.counters.enter()
	defer func() {
		q.count()
		s.counters.leave(q.op, q.bytesOut)
	}()
	if refusal := q.admit(); refusal != nil {
		q.drain()
		q.refuse(refusal)
		return
	}
	f := s.faults.pick(q)
	if f != nil && (spoiledRequest{q, f}).sufferBefore() {
		return
	}
	rep, err := q.handle()
	if f != nil && f.Kind == FaultErrorAfterCommit && err == nil {
		if rep.close != nil {
			rep.close()
		}
		err = f.failure()
	}
	if err != nil {
		q.drain()
	}
	q.wait(err == nil)
	if f != nil && f.Kind == FaultLostReply {
		if rep != nil && rep.close != nil {
			rep.close()
		}
		spoiledRequest{q, f}.reset(true)
		return
	}
	if err != nil {
		q.refuse(q.failure(err))
		return
	}
	if f != nil {
		spoiledRequest{q, f}.spoilHeaders()
	}
	q.send(rep, f)
}

// admit finds out what is asked, by whom, and whether it may be.
func (q *request) admit() *failure {
	q.query = parseQuery(q.r.URL.RawQuery)
	var refusal *failure
	if q.bucket, q.key, refusal = q.resolve(q.r); refusal != nil {
		return refusal
	}
	copySource := q.r.Header.Get("X-Oss-Copy-Source") != "" || q.r.Header.Get("X-Amz-Copy-Source") != ""
	q.op, refusal = classify(q.r.Method, q.bucket, q.key, q.query, copySource)
	if !q.shaper.Admit() {
		return errQpsLimitExceeded
	}
	identity, serr := q.verifier.Verify(q.r, q.bucket, q.key)
	q.identity = identity
	if serr != nil {
		// The service says that a bucket does not exist to whoever asks.
		if _, err := q.store.Bucket(q.bucket); err != nil && q.bucket != "" && q.op != opPutBucket && validBucketName(q.bucket) {
			return errNoSuchBucket
		}
		return fromSign(serr)
	}
	if refusal != nil {
		return refusal
	}
	if q.header("Callback") != "" {
		return errNotImplemented.with("Header", "x-oss-callback")
	}
	if refusal := q.checkNames(); refusal != nil {
		return refusal
	}
	if refusal := q.trafficLimit(); refusal != nil {
		return refusal
	}
	if identity.Anonymous {
		if err := q.authorizeAnonymous(); err != nil {
			return q.failure(err)
		}
	}
	q.trip = q.shaper.Begin(shape.Effort(operationTable[q.op].effort))
	return nil
}

func (q *request) checkNames() *failure {
	if q.bucket != "" && !validBucketName(q.bucket) {
		return errInvalidBucketName.with("BucketName", q.bucket)
	}
	if q.key == "" {
		return nil
	}
	if len(q.key) > maxKey || q.key[0] == '/' || q.key[0] == '\\' || !utf8.ValidString(q.key) {
		return errInvalidObjectName.with("ObjectName", q.key)
	}
	return nil
}

// authorizeAnonymous decides what a request without a signature may do. A
// signed one may do everything: all keys belong to the one owner.
func (q *request) authorizeAnonymous() error {
	if q.bucket == "" {
		return errAccessDenied
	}
	info, err := q.store.Bucket(q.bucket)
	if err != nil {
		return err
	}
	acl := info.ACL
	if q.key != "" {
		if o, err := q.store.Object(q.bucket, q.key); err == nil && o.Attrs.ACL != "" {
			acl = o.Attrs.ACL
		}
	}
	readable := acl == aclPublicRead || acl == aclPublicReadWrite
	switch q.op {
	case opGetObject, opHeadObject, opGetObjectMeta, opGetSymlink, opListObjects, opListObjectsV2, opHeadBucket:
		if readable {
			return nil
		}
	case opPutObject, opAppendObject, opPutSymlink, opDeleteObject, opCopyObject, opInitiateMultipartUpload,
		opUploadPart, opUploadPartCopy, opCompleteMultipartUpload, opAbortMultipartUpload, opListParts, opDeleteMultipleObjects:
		if acl == aclPublicReadWrite {
			return nil
		}
	}
	return errAccessDenied
}

// wait lets the latency of the request pass. It counts from the beginning, or
// for an upload from the end of its body.
func (q *request) wait(done bool) {
	if q.trip == nil {
		return
	}
	if !done {
		q.work = shape.Work{}
	}
	q.work.First = firstOfConnection(q.r.Context())
	d := q.trip.Latency(q.work)
	q.counters.injected(d)
	from := q.began
	if !q.received.IsZero() {
		from = q.received
	}
	_ = shape.Sleep(q.r.Context(), from.Add(d)) // who is gone need not wait
}

// drain reads what the client still sends, within bounds, before it is refused.
// A connection that is closed with bytes unread is reset, and the client would
// see that in place of the refusal.
func (q *request) drain() {
	if q.r.Body == nil || q.r.Body == http.NoBody || q.r.Header.Get("Expect") != "" {
		return
	}
	_, err := io.CopyN(io.Discard, q.r.Body, 64<<20)
	if err != nil && !errors.Is(err, io.EOF) {
		q.log.Debug("drain refused body", "request", q.id, "error", err)
	}
}

// handle does what is asked.
func (q *request) handle() (*reply, error) {
	switch q.op {
	case opListBuckets:
		return bucketRequest{q}.listBuckets()
	case opPutBucket:
		return bucketRequest{q}.putBucket()
	case opDeleteBucket:
		return bucketRequest{q}.deleteBucket()
	case opHeadBucket:
		return bucketRequest{q}.headBucket()
	case opGetBucketInfo:
		return bucketRequest{q}.getBucketInfo()
	case opGetBucketLocation:
		return bucketRequest{q}.getBucketLocation()
	case opGetBucketStat:
		return bucketRequest{q}.getBucketStat()
	case opGetBucketACL:
		return bucketRequest{q}.getBucketACL()
	case opPutBucketACL:
		return bucketRequest{q}.putBucketACL()
	case opGetBucketVersioning:
		return bucketRequest{q}.getBucketVersioning()
	case opGetBucketSetting:
		return bucketRequest{q}.getBucketSetting()
	case opListObjects:
		return listRequest{q}.listObjects()
	case opListObjectsV2:
		return listRequest{q}.listObjectsV2()
	case opListObjectVersions:
		return listRequest{q}.listObjectVersions()
	case opListMultipartUploads:
		return listRequest{q}.listMultipartUploads()
	case opDeleteMultipleObjects:
		return objectRequest{q}.deleteMultipleObjects()
	}
	return q.handleObject()
}

func (q *request) handleObject() (*reply, error) {
	switch q.op {
	case opPutObject:
		return objectRequest{q}.putObject()
	case opGetObject, opHeadObject:
		return objectRequest{q}.getObject()
	case opGetObjectMeta:
		return objectRequest{q}.getObjectMeta()
	case opDeleteObject:
		return objectRequest{q}.deleteObject()
	case opCopyObject:
		return objectRequest{q}.copyObject()
	case opAppendObject:
		return objectRequest{q}.appendObject()
	case opPutSymlink:
		return objectRequest{q}.putSymlink()
	case opGetSymlink:
		return objectRequest{q}.getSymlink()
	case opPutObjectTagging:
		return objectRequest{q}.putObjectTagging()
	case opGetObjectTagging:
		return objectRequest{q}.getObjectTagging()
	case opDeleteObjectTagging:
		return objectRequest{q}.deleteObjectTagging()
	case opPutObjectACL:
		return objectRequest{q}.putObjectACL()
	case opGetObjectACL:
		return objectRequest{q}.getObjectACL()
	case opRestoreObject:
		return objectRequest{q}.restoreObject()
	case opInitiateMultipartUpload:
		return uploadRequest{q}.initiateMultipartUpload()
	case opUploadPart:
		return uploadRequest{q}.uploadPart()
	case opUploadPartCopy:
		return uploadRequest{q}.uploadPartCopy()
	case opCompleteMultipartUpload:
		return uploadRequest{q}.completeMultipartUpload()
	case opAbortMultipartUpload:
		return uploadRequest{q}.abortMultipartUpload()
	case opListParts:
		return uploadRequest{q}.listParts()
	}
	return nil, errNotImplemented
}
