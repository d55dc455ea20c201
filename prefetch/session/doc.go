// Package session keeps what trainers have announced, hold and have let go, and
// decides what is fetched next.
//
// A trainer's worker opens a session and announces files, or folders, in the
// order in which a sampler will use them ([Book.Preload]). Each sampler index is a
// stream with a queue of its own. An announced path is an [Entry]: one however
// many announce it, with the set of those who hold it. It is resolved to objects,
// waits until the budget has room for all of its bytes, is fetched, and then stays
// charged to the budget until its last holder has let it go.
//
//	requested → resolving → waiting → fetching → ready
//	                    ↘ streamed, failed ↙
//
// A [Book] is a state machine: it does no input or output, starts nothing and
// reads no clock. Whoever owns it asks what is to be resolved and fetched
// ([Book.NextResolve], [Book.NextFetch]), tells it what became of that, and takes
// what nobody holds any more ([Book.TakeGone]). It is not safe for concurrent use.
//
// What must hold, whatever is called in whatever order: the charged bytes never
// exceed the budget; nothing that is held is given up; everything that was let go
// is given up; a path is fetched once; and a session that falls silent loses what
// it holds after its lease, so that nothing waits for ever. DESIGN.md says why it
// is this way.
package session
