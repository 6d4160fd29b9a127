// Package oncrpc serves programs of ONC RPC (RFC 5531) over TCP.
//
// A call's way: conn.read reads a record, into memory from the budget; conn.dispatch
// decodes the header and passes the [Call] to its [Procedure], which answers it; conn.flush writes
// the reply. If the call blocks, or waits, another goroutine goes on reading the connection
// (handoff.go).
package oncrpc
