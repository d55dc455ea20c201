package wire

// AcceptParams are the parameters of the control method accept.
type AcceptParams struct {
	// Path is relative to the directory on which the call is made.
	Path string `json:"path"`
	// Take says that what has the sum CRC64 is accepted; without it the daemon only says what
	// there is.
	Take  bool   `json:"take,omitempty"`
	CRC64 string `json:"crc64,omitempty"`
}
