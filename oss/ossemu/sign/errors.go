package sign

// Error is a refusal in the service's words. It is also what a body's Read
// returns when the content is not what was signed; find it with errors.As.
type Error struct {
	// Status is the HTTP status.
	Status  int
	Code    string
	Message string
	// EC is the service's own error number, empty if it has none.
	EC string
	// Details are further elements of the error document, by element name.
	Details map[string]string
}

// Error returns code and message.
func (e *Error) Error() string { return e.Code + ": " + e.Message }
