package wire

import (
	"time"
)

// The methods that this program answers, beside hello.
const (
	MethodStatus = "status"
	MethodUmount = "umount"
	MethodFlush  = "flush"
	MethodDrain  = "drain"
	MethodAccept = "accept"
)

// UmountPatience is how long the daemon tries to unmount for a caller of umount.
const UmountPatience = 2 * time.Second
