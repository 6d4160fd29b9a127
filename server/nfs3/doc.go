// Package nfs3 is the native engine's NFS version 3 (RFC 1813): it answers what
// nfs/nfs3 has on the wire.
//
// program.go has the table of procedures, and a file per family answers them. A
// WRITE's way:
//
//   - oncrpc reads the record into a buffer of its free list, finds the table's
//     entry and calls service.write on the connection's goroutine.
//   - decode takes the arguments apart. WriteArgs.Data aliases the record.
//   - Opener.OpenData checks the handle's MAC, finds its volume, and takes the
//     file's descriptor from the cache, or opens it by the kernel's handle. That
//     needs root, which this goroutine is.
//   - An UNSTABLE write of the file's owner, or of root, is made right there
//     (writesDirectly). Should it have to wait, another goroutine reads the
//     connection's next call. For all else task.start squashes the caller as the
//     volume says and hands the rest to a worker, a thread that has the caller's
//     identity.
//   - There, mayUse lets the owner pass and asks the kernel for everyone else.
//     writeData writes from the record to the file, and syncs if the client
//     wants the data to be stable. As the thread is the caller's, setuid and
//     setgid fall as they would on a local disk.
//   - The result, with the attributes from before and after, is appended to the
//     call's reply. The descriptor goes back to the cache, the handler
//     or its Promise puts the header in front, and a goroutine of the connection sends it.
//   - When it is sent, the record and the reply go back to the free list.
//
// An UNSTABLE write stays in the page cache until COMMIT syncs the file. Should a
// sync of the volume fail, or the server start anew, the write verifier is another
// one, and clients send again what was not committed.
package nfs3
