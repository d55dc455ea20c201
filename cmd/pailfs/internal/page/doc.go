// Package page is the status page of a mount: what `pailfs top` shows, and the last half hour of it,
// for a browser.
//
//	p := page.New(source)
//	go p.Run(ctx)              // samples the history
//	server.Serve(metrics, health, p)
//	p.Close()                  // before what the source asks is closed
//
// The figures are those of package overview, made from the daemon's own status, so the page, `pailfs
// top` and `pailfs status` say the same of the same moment. The page is plain HTML, CSS and JavaScript
// in files, embedded in the program; it loads nothing from elsewhere, and page.json is all it asks.
//
// Whoever reaches the port gets counts, sizes and rates, as a stranger in a container gets from
// `pailfs status`. Names of files, tasks and processes are for who has the token of this daemon, which
// root and the owner are told by `pailfs status --page`, and only over the loopback address: nothing
// else is encrypted. The token stands behind the # of the address, which browsers send to nobody, and
// reaches the daemon in a header, which pages of other sites cannot set.
package page
