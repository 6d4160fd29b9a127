// Package inode has the files that are in use: it opens them by their handles, keeps them open between calls, and makes
// every change of a file or its names. It knows no protocol.
//
// # The way of a call
//
//  1. [Opener.Open] gets a handle. It checks the MAC (package locate), finds the volume by the number
//     in the handle (package exports), and refuses addresses that may not use the volume. It begins a call in the
//     volume, so that the export can't end before the call does.
//  2. It returns a [File]. The descriptor comes from the cache (descriptors.go), or package locate finds
//     the file, as the process: usually as root. So the caller of File must check what the
//     client's user may do. With [AtOnce] it fails where this would block. What podnas opens by itself is opened by [Opener.OpenIn],
//     and a name in a directory that is open by [File.Lookup].
//  3. The methods of File are the system calls. A method that the kernel must check the user's rights
//     for takes an [actas.Thread].
//  4. Each change of a file is made in File.change (change.go), and several by one call in Together.Do: attributes that were read before are not used
//     (attrcache.go), and the change attribute moves (changeattr.go).
//  5. A call that changes names first locks those of the directory, [LockNames]: it has to tell the
//     client the directory's attributes from right before and after its change (lock.go). There is one function for each
//     kind of change, in names.go. It charges the volume's space.Account, if the server counts, and tells the volume's
//     locate.Index, if it has one. A file that is removed is freed when the names are unlocked (names.go).
//  6. [File.SyncHere] or [File.BeginSync] puts the change on the disk before the reply: package durable.
//  7. [File.Close] gives the descriptor back to the cache, and ends the call in the volume.
//
// # One object for each file in use
//
// What is known of a file that is open, that clients hold, that is an orphan, or whose names a call changes is in one object,
// inode (inode.go): its descriptors, who holds it, the lock of its names, and its syncs. A call finds it in a sharded table,
// and has it from then on.
//
// Of files that are not in use there are caches, which forget: their handles and attributes (locate.Handles), versions and
// change attributes (attrcache.go, changeattr.go), and which directories are inside their volumes (locate.Inside). They
// must know more than a file's object lives, and are read without a lock.
//
// # What is cached
//
//   - Descriptors stay open for some seconds after their last use (descriptors.go).
//   - The handle of a file is kept, so a LOOKUP, or an entry of a listing, often takes one system call
//     alone (locate.Handles).
//   - The attributes of a file are kept with its handle, for at most a second, and as long as no call
//     has begun to change the file (attrcache.go).
//   - An open remembers what the kernel has said about the rights of its users (held.go).
//
// # Files that clients have open
//
// A client of NFSv4 has a file open by a [Held] (held.go), and the file stays when its last name is
// removed. Before that, it gets another name in a directory that no client reaches: it is an orphan (orphans.go).
// Clients see one link less. Only who holds the file, or may reclaim it after a restart, can open it
// then. The last Close removes the name, and with it the file. The next process finds what is there
// (orphans.go), and removes what nobody has taken over or reclaimed.
//
// # A process that is not root
//
// Root opens a file whatever its mode is. The only user (actas.Only) can't, so openown.go widens the mode of the
// user's file for a moment. It records that before, so that the next process puts the mode right if
// this one is killed (openown.go).
//
// # Locks
//
// They are taken in this order:
//
//  1. the names of directories, in the order of volume and FileID: [LockNames]
//  2. content.mu, of two files in the order of volume and FileID, for as long as their data is changed
//  3. the volume's gate, snapshot.Volume: File.change, or Together.Do for several changes of a call
//  4. the last name of a file that is held: inode.lastName
//  5. what space.Account reserves
//  6. modes.mu, over the system calls that widen a mode and narrow it again
//  7. one of changes, over the system calls that look at a file, so that attributes and change attribute go together
//  8. a shard of the table, for some lines. Then those of space, locate and durable.
//
// A call that holds one of them has its permit to block (package oncrpc), and waits for none: those that wait for the lock may have all
// permits. One that is to wait without its permit does so before it takes a lock. Of those that wait for names, the one that is next waits for
// its permit with nothing but its turn: LockNamesInTurn.
//
// Over other system calls only the names and content.mu are held, and what is in the package comments of space, locate and durable.
package inode
