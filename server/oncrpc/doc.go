// Package oncrpc serves programs of ONC RPC (RFC 5531) over TCP.
//
// A call's way: conn.read reads a record, into memory from the budget; conn.dispatch
// decodes the header and passes the [Call] to its [Procedure], which returns an [Answer], or
// has a [Promise] kept on another goroutine; conn.flush writes the reply. If the call
// blocks, another goroutine goes on reading the connection (handoff.go).
package oncrpc
