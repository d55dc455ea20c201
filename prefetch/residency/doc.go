// Package residency tells how much of what paths mean is in a cache, and takes it out.
//
// It fetches nothing and remembers nothing. Both questions go through package rights, and
// who measures much leaves others their turn (package turns).
package residency
