// Package nfs3 is the native engine's NFS version 3 (RFC 1813): it answers what
// nfs/nfs3 has on the wire.
//
// program.go has the table of procedures, and a file per family answers them. A
// WRITE's way:
//
//   - oncrpc reads the record into a buffer of its free list, finds the table's
//     entry and calls service.write on the connection's goroutine.
//   - decode decodes the arguments. WriteArgs.Data aliases the record.
//   - Task.Open checks the handle's MAC and finds its volume. The file's descriptor comes
//     from the cache, or the kernel opens the file by its handle, which needs root: this
//     goroutine is root.
//   - task.write calls Task.Write, of package vfs. A write of the file's owner, or of
//     root, is made right there. If it blocks, another goroutine reads the connection's
//     next call. For other callers Task.Write does nothing, and task.write is called again
//     on a worker, a thread that has the caller's identity. There the kernel decides
//     whether the caller may write, and clears the setuid and setgid bits as on a local
//     disk.
//   - If the client requests stable data, the file is synced, and task.Step is called
//     again after that.
//   - The result, with the attributes from before and after, is appended to the
//     call's reply. The descriptor goes back to the cache, the handler
//     or its Promise puts the header in front, and a goroutine of the connection sends it.
//   - When it is sent, the record and the reply go back to the free list.
//
// An UNSTABLE write stays in the page cache until COMMIT syncs the file. If a sync of the
// volume fails, or the server restarts, the write verifier changes, and clients send their
// uncommitted writes again.
package nfs3
