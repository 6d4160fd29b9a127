// Package export has what clients access: the table of exported volumes, the handles of their files,
// and what is done with the files on behalf of clients. It knows no protocol.
//
// # The way of a call
//
//  1. [Table.ByPath] finds the volume that a client mounts, and [Opener.Root] returns the handle of
//     its root.
//  2. [Opener.Open] gets a handle. It checks the MAC ([Key.Parse]), finds the volume by the number
//     in the handle, and refuses addresses that may not use the volume. It begins a call in the
//     volume, so that the export can't end before the call does.
//  3. It returns a [File]. The descriptor comes from the cache (filecache.go), or a finder opens the
//     file (finder.go), as the process: usually as root. So the caller of File must check what the
//     client's user may do. [Opener.OpenAtOnce] and [Opener.Look] return nothing where this would
//     block.
//  4. The methods of File are the system calls. A method that the kernel must check the user's rights
//     for takes an [actas.Thread]. [actas.Users.As] gives one: it has the goroutine's thread act as
//     the user.
//  5. A call that changes names first locks those of the directory, [LockNames]: it has to tell the
//     client the directory's attributes from right before and after its change (lock.go). Each
//     change is charged to the volume's space.Account, if the server counts, and told to the index
//     (indexnames.go) and to what remembers attributes (attrcache.go).
//  6. [File.SyncHere] or [File.BeginSync] puts the change on the disk before the reply: package durable.
//  7. [File.Close] gives the descriptor back to the cache, and ends the call in the volume.
//
// # Handles
//
// A handle has the volume's number, a [disk.FileID], which says which file of the volume it is, and a MAC
// with a key that lives on the disk (handle.go). It does not depend on a process, a mount or a machine,
// so it stays the same after a restart, after a rename, and after the disk has moved.
//
// The FileID has one of two forms: it is the kernel's handle of the file, or the inode's number and
// time of birth. The form is fixed for each volume in its record (form.go), because Linux
// takes two handles of one file for two files. Open files and locks are known by the volume's own form.
// Handles of the other form, which an earlier podnas gave out, are translated at each use.
//
// A finder opens the file of a FileID. Which one a volume has depends on its form and on the rights
// of the process, so the next process may find the same files in another way:
//
//   - disk.ByHandle has the kernel open its own handle. This takes a right, and a
//     volume of that form.
//   - index finds files of both forms, as both have the inode's number. Package inodeindex
//     remembers the names of each inode. index opens the path that they make, from the volume's
//     root, with openat2(2), and compares what it has opened with the FileID (index.go). The index
//     learns the names that clients make and change (indexnames.go). A walk fills it, repairs it
//     where somebody has changed the disk directly, and shows that a file does not exist
//     (indexwalk.go). A file of the index lets the next process find files before its walk has
//     ended (keptindex.go).
//
// # What is cached
//
//   - Descriptors stay open for some seconds after their last use (filecache.go).
//   - A MAC that was right is not computed again (handle.go).
//   - The handle of a file is kept, so a LOOKUP, or an entry of a listing, often takes one system call
//     alone (handles.go).
//   - The attributes of a file are kept with its handle, for at most a second, and as long as no call
//     has begun to change the file (attrcache.go).
//   - A directory that was found inside of its volume is not checked again for a moment (inside.go).
//   - An open remembers what the kernel has said about the rights of its users (granted.go).
//
// # Files that clients have open
//
// A client of NFSv4.1 has a file open by a [Held] (held.go), and the file stays when its last name is
// removed. Before that, it gets another name in a directory that no client reaches (heldfiles.go).
// Clients see one link less. Only who holds the file, or may reclaim it after a restart, can open it
// then. The last Close removes the name, and with it the file. The next process finds what is there
// (keptfiles.go), and removes what nobody has taken over or reclaimed.
//
// # A process that is not root
//
// If the threads of the process can't act as other users, [actas.Only] is the user as whom all is done, and the table
// refuses the clients of volumes whose options promise them other users.
//
// Root opens a file whatever its mode is. The only user can't, so openown.go widens the mode of the
// user's file for a moment. It records that before, so that the next process puts the mode right if
// this one is killed (modes.go).
package export
