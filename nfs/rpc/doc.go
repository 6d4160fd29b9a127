// Package rpc is version 2 of ONC RPC (RFC 5531) over TCP: records, the headers of
// calls and replies, AUTH_SYS credentials, and a client.
//
// A call's way through the client: [Client.Call] appends the record mark, the
// [CallHeader] and the arguments to one buffer and writes it; the client's reading
// goroutine reads the reply with [ReadRecord] and passes it to the caller that waits
// for its transaction id.
package rpc
