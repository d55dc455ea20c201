// Command pailfs-kube is pailfs in Kubernetes: `node` tells a Node what its mounts,
// caches and GPUs are, `controller` marks the nodes whose agents are silent.
//
// It is static, and knows mounts and GPUs through the programs pailfs and pailfs-gpu,
// which lie beside it or on PATH.
package main
