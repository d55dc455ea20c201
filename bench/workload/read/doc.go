// Package read holds the workloads that read files: large and small ones, from the
// bucket, from the SSD and from memory.
package read
