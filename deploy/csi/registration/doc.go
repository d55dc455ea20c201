// Package registration tells kubelet of the driver, as node-driver-registrar does for others: kubelet asks when it sees a
// socket in its directory of plugins, and again after it was restarted.
package registration
