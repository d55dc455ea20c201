// Package turns lets users work one after the other.
package turns
