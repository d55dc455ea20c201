// Package ask is the commands' side of a mount: it finds the mount that a path is of, calls the
// methods of its daemon and watches that end.
//
//	at, m, err := ask.Above(path)
//	err = ask.Call(ctx, at, wire.MethodStatus, nil, &report)
//
// Nothing here waits for ever for a daemon that is stuck: a call is made by a child process and
// returns when its context ends.
// Errors say what to do; one that tells of a dead daemon has the exit code [ExitDead].
package ask
