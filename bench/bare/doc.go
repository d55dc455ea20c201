// Package bare speaks to an OSS server with as little as possible between the
// program and the socket.
//
// It is what pailfs is measured against: the same requests without a file
// system, a cache or retries. It also fills buckets before a measurement. It
// shares no code with pailfs, so that neither can hide the other's cost.
// Requests carry a V1 signature; a failed one is an error at once.
package bare
