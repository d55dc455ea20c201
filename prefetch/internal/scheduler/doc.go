// Package scheduler keeps as many fetches on their way as the object store bears, the urgent
// before the others.
package scheduler
