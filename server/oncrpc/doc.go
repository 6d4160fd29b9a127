// Package oncrpc serves programs of ONC RPC (RFC 5531) over TCP.
//
// A call's way:
//
//  1. Peers.Admit admits its connection, and closes others that do nothing if there are too many
//     (peers.go).
//  2. conn.read reads a record, into memory of the server's Budget (memory.go). It takes that when
//     the record begins. While there is none, it does not read the connection, so the client has to
//     wait. A connection without a call has neither a buffer (conn.go) nor a Call.
//  3. conn.dispatch checks versions and credential, and passes the [Call] to its [Procedure], which
//     answers it. Of a call that must not be done twice the Procedure's Repeated is asked first.
//  4. Call.send puts the header in front of the results. conn.flush writes the replies of a batch in
//     one write.
//
// One goroutine does all of this for one call after the other. If a call blocks, or waits, another
// goroutine goes on reading the connection (blocking.go), and a further one writes the
// replies to such calls: those that have waited for the same sync leave together. Each blocked call
// needs a thread, so their number is limited, and shared fairly between volumes and clients
// (blocking.go).
//
// A watchdog closes connections that wait too long for the client (watchdog.go). The system calls
// of sockets never block, so they bypass Go's scheduler (package socket).
//
// Order of locks: Server.mu, Peers.mu, conn.looks. conn.mu and Budget.mu may be taken with Server.mu held; with them, and
// with those of the semaphore, the readers and free lists, no other is taken.
package oncrpc
