// Package oncrpc serves programs of ONC RPC (RFC 5531) over TCP.
//
// A call's way: conn.read takes a record off the connection,
// within the budget; conn.dispatch decodes the header and hands the [Call] to its
// [Procedure], which returns an [Answer], or has a [Promise] kept on another goroutine;
// conn.flush writes the reply. If a call that is answered there has to wait,
// another goroutine takes the turn to read the connection (turn.go).
package oncrpc
