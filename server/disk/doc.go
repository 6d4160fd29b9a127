// Package disk has the system calls on the disk: descriptors that have an owner, what a file system can, and how
// its files are identified. It imports nothing of podnas and decides nothing: who may do what, and what is cached,
// is known above.
//
// # The way of a call
//
//  1. [Of] says what the file system of a volume's root can. The other packages ask its [FS], and not what
//     it is called: whether fstat(2) may block, or a directory's sync has the inodes of its new files.
//  2. A [FileID] identifies a file. [ByHandle] makes it of the kernel's handle, which also opens the file, and
//     [ByInode] of the inode's number and time of birth. [FS.NumberIn] finds the inode's number in both.
//  3. What opens a file returns a [Descriptor], which its owner closes or hands on. A descriptor that is an int is
//     borrowed.
//  4. [Statx], [Fstat] and [PreadNow] are calls that x/sys allocates for, or that need not inform Go's
//     scheduler, as they never block (syscalls.go). They fill an [Attr].
//  5. [FS.Sync] has a change be on the disk, or says that it may not be.
//
// There are no locks in this package, and nothing is remembered.
package disk
