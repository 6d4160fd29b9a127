// Package nfs3 is the native engine's NFS version 3 (RFC 1813): it answers what
// nfs/nfs3 has on the wire.
//
// program.go has the table of procedures, and a file per family answers them. A
// WRITE's way:
//
//   - oncrpc reads the record into a buffer of its free list, finds the table's
//     entry and calls service.write on the connection's goroutine.
//   - decode takes the arguments apart. WriteArgs.Data aliases the record.
//   - Task.Open has the handle's MAC checked and its volume found, and takes the
//     file's descriptor from the cache, or has it opened by the kernel's handle. That
//     needs root, which this goroutine is.
//   - task.write calls Task.Write, of package vfs. A write of the file's owner, or of
//     root, is made right there. Should it have to wait, another goroutine reads the
//     connection's next call. For all else Task.Write has nothing done, and task.write
//     is called again on a worker, a thread that has the caller's identity. There the
//     kernel decides whether the caller may write, and setuid and setgid fall as they
//     would on a local disk.
//   - If the client wants the data to be stable, the file is synced, and task.Step is
//     called once more after that.
//   - The result, with the attributes from before and after, is appended to the
//     call's reply. The descriptor goes back to the cache, the handler
//     or its Promise puts the header in front, and a goroutine of the connection sends it.
//   - When it is sent, the record and the reply go back to the free list.
//
// An UNSTABLE write stays in the page cache until COMMIT syncs the file. Should a
// sync of the volume fail, or the server start anew, the write verifier is another
// one, and clients send again what was not committed.
package nfs3
