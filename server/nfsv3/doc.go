// Package nfsv3 is the native engine's NFS version 3 (RFC 1813): it answers what
// nfs/nfs3 has on the wire.
//
// program.go has the table of procedures, and a file per family answers them. A
// WRITE's way:
//
//   - oncrpc reads the record into a buffer of its free list, finds the table's
//     entry and calls service.handler's function, on the goroutine that reads the connection.
//   - task.write decodes the arguments. WriteArgs.Data aliases the record.
//   - Call.Open, of package vfs, checks the handle's MAC and finds its volume. The file's
//     descriptor comes from the cache, or the kernel opens the file by its handle, which needs root:
//     this goroutine is root.
//   - Call.Write writes. Of a caller that is neither root nor the file's owner the kernel is asked
//     before whether it may, by a thread that has its identity for that time. Such a thread also writes where the
//     kernel must clear the setuid and setgid bits as on a local disk. If it blocks, another
//     goroutine reads the connection's next call.
//   - If the client requests stable data, Call.Sync syncs the file. Another goroutine reads the
//     connection meanwhile, unless the call is alone.
//   - The result, with the attributes from before and after, is appended to the
//     call's reply. The descriptor goes back to the cache, oncrpc puts the header in front, and a
//     goroutine of the connection sends it.
//   - When it is sent, the record and the reply go back to the free list.
//
// A call that must not be done twice, such as a REMOVE, is first looked up among the replies to
// earlier ones (replay.go).
//
// An UNSTABLE write stays in the page cache until COMMIT syncs the file. If a sync of the
// volume fails, or the server restarts, the write verifier changes, and clients send their
// uncommitted writes again.
package nfsv3
