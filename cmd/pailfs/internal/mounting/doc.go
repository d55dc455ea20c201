// Package mounting runs one mount: it opens the parts in order, serves, and closes them in reverse.
//
//	d, err := mounting.Open(ctx, mounting.Config{Settings: l, Source: source, At: at, Log: log})
//	err = d.Run(signals)
//
// The order is that of the data, from the bucket upward: HTTP address, credentials and client,
// cache, names, attributes, write-back, prefetch, control channel, mount. What depends on another
// part is opened after it; [Daemon.Run] takes the mount away first, publishes what is left and
// closes the others. An error of Open leaves nothing behind.
//
// The parts do not know each other: what one needs of another is handed over here. The control
// methods that only this program's commands call are answered here, with the types of package wire;
// what loaders call is in prefetch/control. Nothing of the data path is decided here.
package mounting
