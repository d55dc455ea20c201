// Package write holds the workloads that bring files of their own: checkpoints, logs and
// small files that are written, and what is read of such files (restore, read/mmap-model).
package write
