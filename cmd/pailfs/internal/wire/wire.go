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
	MethodPage   = "page"
)

// PageAnswer says where the status page is.
type PageAnswer struct {
	// URL is its address. It holds a secret if Names says that the page at that address tells names.
	URL   string `json:"url"`
	Names bool   `json:"names"`
}

// UmountPatience is how long the daemon tries to unmount for a caller of umount.
const UmountPatience = 2 * time.Second
