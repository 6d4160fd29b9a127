// Package vfs has the operations on files, independent of the protocol's version: opening,
// rights, reading, writing, attributes, names, and syncing.
//
// A Call is a call on its way through them, on one goroutine, which is root. It opens the files
// of the call's handles, and makes every system call for which the caller is known to have the
// right. For the others Call.AsCaller gives the goroutine the caller's identity for the time of a
// function, so that the kernel decides what the caller may do: by mode bits and ACLs, sticky and
// setgid bits. What needs that takes an actas.Thread, which only AsCaller has.
//
// The rights of these callers are known:
//
//   - root, and the only user as whom a process can act;
//   - the owner of a file, for READ, WRITE and COMMIT always, and for LOOKUP and ACCESS by the
//     file's mode (rights.go);
//   - the owner of a directory whose mode lets the owner write to it, for REMOVE, and for RENAME in
//     it (names.go);
//   - a caller that reads or writes by an open of version 4, if the kernel was asked about this
//     caller before (Call.Opened).
//
// The goroutine is the one that reads the connection. Conn says how the calls behind it are not
// held up: by Conn.MayWait before what may block, and Conn.Wait before the goroutine waits for
// another one, which Call.Sync does.
//
// The files that operations get must be open in the same call. The errors of operations become a
// status in Status alone (status.go), but for the few that a version has for itself.
package vfs
