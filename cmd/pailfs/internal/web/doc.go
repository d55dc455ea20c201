// Package web serves a daemon's metrics, health and pages over HTTP, and profiles where they were
// asked for. No page of another site gets an answer.
//
// An address that is taken is no reason not to mount: it is tried again, and [Server.Warning] says
// so meanwhile. What is healthy is the caller's to say.
package web
