package content

// Use says when an object was used last, and whether it was released since.
type Use struct {
	Last     int64 // Unix seconds
	Released bool
}
