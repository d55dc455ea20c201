// Package childtest runs tests of what makes its calls in a child: the test program is started again
// as that child.
package childtest
