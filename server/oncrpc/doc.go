// Package oncrpc is version 2 of ONC RPC (RFC 5531) over TCP: records, the
// headers of calls and replies, AUTH_SYS credentials, a client, and a server.
//
// A call's way through the server: conn.read takes a record off the connection,
// within the budget; conn.dispatch decodes the header and hands the [Call] to its
// [Procedure], which answers there or on another goroutine; [Call.Finish] puts the
// reply out, and conn.flush writes it. If a call that is answered there has to wait,
// another goroutine takes the turn to read the connection (turn.go).
//
// Through the client: [Client.Call] appends the record mark, the [CallHeader] and the
// arguments to one buffer and writes it; the client's reading goroutine takes
// the reply with [ReadRecord] and hands it to the caller that waits for its
// transaction id.
package oncrpc
