// Package reach is the way from settings to a bucket: flags, credentials, the checks of both, and
// clients for commands that mount nothing.
//
//	l, err := flags.Load(p, parsed)
//	conn, err := reach.Connect(p, l)
//	bucket, err := conn.Bucket(ctx, name, prefix)
//
// Keys are taken out of the environment once they were read. Paths that others can replace, and
// tokens over plain HTTP, are refused here, for mounts and commands alike.
package reach
