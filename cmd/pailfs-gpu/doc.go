// Pailfs-gpu probes the GPUs of this host and runs trainers on them.
//
//	pailfs-gpu gpu [--json|--watch]
//	pailfs-gpu run --gpus 2 --mount /mnt/data -- torchrun train.py
//
// It is a program of its own because NVML needs cgo, and pailfs is static.
// `pailfs gpu` and `pailfs run` hand over to it. What it wants of a mount it asks
// of the pailfs program beside it, as a user would.
package main
