// Package news wakes those who wait for a state to change.
package news
