// Package sign verifies who sent a request to the emulator, and that its body
// is the one that was signed.
//
// [Verifier.Verify] recognises the scheme by looking at the Authorization
// header, then at the query: OSS V1, V2 and V4 as header and as presigned URL, the
// S3 schemes SigV4 and SigV2 likewise, else the request is anonymous. It
// rebuilds the string that the client must have signed from the request as it
// came over the wire, signs it with the secret of the named key and compares.
// Clock, expiry and security token are judged on the way.
//
// [Verifier.Body] then gives the content. It undoes aws-chunked framing and
// checks chunk signatures, trailers and x-amz-content-sha256 while the bytes
// flow; a mismatch is an error in place of io.EOF, so whoever stores the bytes
// must not publish them before Read has returned io.EOF.
//
// What an identity may do is not decided here: an anonymous request to a
// private bucket is the caller's to refuse. The package is written from the
// rules of the schemes and imports no SDK and nothing else of pailfs, so that a
// misunderstanding cannot be shared with the clients it judges.
package sign
