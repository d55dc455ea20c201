// Package e2e runs the scheduler with the plugin, and the node agent, against a real
// etcd, apiserver and controller manager (kubecp). Nodes are objects without a machine,
// and what a kubelet does with pods on them kubelet_test.go does.
package e2e
