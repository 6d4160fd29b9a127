// Package durable has changes be on the disk before clients are told so, and has clients send again what may be lost.
//
// # The way of a call
//
//  1. A call takes [File.Sample] before it changes a file. What it writes without a sync, it tells by [File.Changed]:
//     the descriptor stays open until that is synced.
//  2. [Syncer.Here] syncs on the call's own goroutine. If another goroutine does, [Syncer.Begin] has the call wait
//     in [Syncing.Wait]. One sync serves all calls that wait when it begins, of one file or of several (sync.go).
//  3. A semaphore that is shared fairly between volumes bounds the syncs at a time (sync.go).
//  4. A failed sync changes the volume's write verifier, [Volume.WriteVerifier], and is remembered: each call whose
//     change may have been in it gets the error (file.go).
//  5. On btrfs a directory's sync also waits for other syncs that are under way (overlap.go).
//
// # Locks
//
// State.syncing is held while a regular file is synced, over the system call, so that a failure is recorded before
// the next sync of the file begins. The mutexes of syncs, slots and overlap are held for some lines each, and none is
// taken under another but slots.mu under State.syncing.
package durable
