// Package snapshot keeps the files of a volume as they are at one moment, while clients go on.
//
// # The cut
//
// Each change of a file is made between Volume.Enter and Volume.Leave (gate.go), and all changes by one call are, as far as that can be
// (inode.Together). To take a snapshot, the gate is closed, and opened again as soon as the changes inside have ended: this is
// the cut (cut.go), a moment between two calls. Nothing is copied in it, so it takes as long as the longest change that is under way. If
// that is more than cutWait, the gate is opened and closed again, for longer and longer. What may take long by itself, such as a
// CLONE, has entered a gate of its own before (Volume.EnterLong), which is closed for a cut while the other is still open. What is dirty is
// written before that, unless the end of another snapshot has just done so (syncs.go).
//
// # Before the first change
//
// From then on the volume has a taking (taking.go), until the snapshot is complete. Before a call changes a file, Volume.Before has it
// captured, if it has not been yet: a regular file as a clone that shares its blocks, a directory as a list of its names. A call
// that moves a file to another directory says so by Volume.Moves, so that it is found.
//
// Meanwhile a walk (walk.go) goes through the tree as it was at the cut, and makes each directory of the snapshot, two at a time
// (queue.go): with what was captured where there is that, else by a clone of the file as it is, because it has not changed (fill.go).
//
// # The next snapshot
//
// The catalogue (catalogue.go) says of which file of the volume each file was made, and the ctime that it had. A file that
// has it still, when the next snapshot is taken, has not changed, and the next one gets the same file by link(2) (earlier.go). The names
// of a directory are looked for in the same directory, by its inode.
//
// # What is on the disk
//
// Below the folder of the work: objects/INODE, what was captured, or a directory of the snapshot in the making; names/INODE,
// the names of a directory; and at the end catalogue, and tree, the snapshot. It depends on nothing else, and other snapshots do not depend on
// it. If the process ends before that, all of it is worth nothing, so none of it is synced before it is complete.
//
// # Locks
//
// taking.mu and queue.mu are held for some lines. Who captures a file has claimed its inode, and others wait for that file alone; a claim is
// made with the locks of package inode held, never the other way. A call that would have to wait asks before it takes them: Volume.Awaited.
package snapshot
