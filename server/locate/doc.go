// Package locate finds the file of a handle, and the handle of a file.
//
// # The way of a call
//
//  1. [Key.Parse] checks the MAC of a client's handle, and returns the volume's number and the [disk.FileID].
//     A MAC that was right is not computed again.
//  2. [Volume.Open] has the volume's finder open the file (volume.go). The error is ESTALE if it is gone, and EAGAIN
//     if that is not known yet.
//  3. [Inside.Find] shows that a directory is below the root of its volume: somebody may have moved it out directly on
//     the disk. [Inside.Has] knows it for a moment.
//  4. For a reply, [Volume.Identify] returns the FileID of a name, and [Key.AppendHandle] the handle. [Handles]
//     remembers handles, and attributes beside them, so that an entry of a listing often takes one system call.
//
// # Handles
//
// A handle has the volume's number, a FileID, which says which file of the volume it is, and a MAC
// with a key that lives on the disk (handle.go). It does not depend on a process, a mount or a machine,
// so it stays the same after a restart, after a rename, and after the disk has moved.
//
// The FileID has one of two forms: it is the kernel's handle of the file, or the inode's number and
// time of birth. The form is fixed for each volume in its record (volume.go), because Linux
// takes two handles of one file for two files. No file is found by a handle of another form.
//
// A finder opens the file of a FileID. Which one a volume has depends on its form and on the rights
// of the process, so the next process may find the same files in another way:
//
//   - disk.ByHandle has the kernel open its own handle. This takes a right, and a volume of that form.
//   - [Index] finds files of both forms, as both have the inode's number. Package inodeindex
//     remembers the names of each inode. The index opens the path that they make, from the volume's
//     root, with openat2(2), and compares what it has opened with the FileID (index.go). The index
//     learns the names that clients make and change (index.go). A walk fills it, repairs it
//     where somebody has changed the disk directly, and shows that a file does not exist
//     (indexwalk.go). A file of the index lets the next process find files before its walk has
//     ended (keptindex.go).
//
// # Locks
//
// walks.mu guards what is known of walks, for some lines each. keptIndex.mu is held while the index's file is read or
// written, over the system calls, and walks.mu may be taken under it. Volume.climbing lets one long look upwards go on
// at a time. Handles has no locks.
package locate
