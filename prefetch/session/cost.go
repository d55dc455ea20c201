package session

// What is remembered for a user is charged to that user, in bytes of the daemon's memory
// ([budget.Names]). The figures are those of a heap that was measured, and a little more;
// TestWhatIsHeldIsCharged compares them.
const (
	// streamCost is one stream of a session but the first. A session with its texts, with what
	// is known of where it is kept and with one stream has some 5 KiB; they are bounded by
	// their number ([budget.Sessions]), so that names cannot take what opening one needs.
	streamCost = 1 << 10
	// folderCost is a folder in which a session holds names, and nameCost a holder with its
	// entry and one object, held in the cache. To both the length of the text is added.
	folderCost = 512
	nameCost   = 1 << 10
	// usualName is how long a text is taken to be of a name that nobody knows yet.
	usualName = 64
	// ObjectCost is one more object of a folder that was announced as a whole.
	ObjectCost = 384
)
