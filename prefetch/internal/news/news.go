package news

// News are of one state, and used under its lock. The zero value is ready.
type News struct {
	// next, if somebody waits, is closed when anything changes.
	next chan struct{}
}

// Next returns a channel that is closed at the next change.
func (n *News) Next() <-chan struct{} {
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}

// Tell says that something has changed.
func (n *News) Tell() {
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}
