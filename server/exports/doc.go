// Package exports has the table of exported volumes: what clients may mount, with which options, and from which networks.
//
// # The way of a call
//
//  1. [Table.ByPath] finds the volume that a client mounts, and [Table.ByID] that of a handle.
//  2. [Volume.Allows] and [Volume.AllowsPort] refuse clients whose address or port may not use the volume.
//  3. [Volume.Begin] begins a call, and [Volume.Done] ends it: [Table.Remove] waits for the calls of the volume.
//  4. The parts of a volume are in its fields, each with a package of its own: Files finds them (locate),
//     Durable syncs them (durable), Account counts their usage where the server does (space), and FS says
//     what the disk can (disk). Options.Squash says as whom callers act (actas).
//
// [Table.Export] puts these parts together. It starts to count a volume's files (counting.go), and to fill its index.
//
// # Locks
//
// Table.mu guards the volumes, and Volume.mu that no call begins after the end. Table.mu is taken by each call, so neither is held over
// a call, or over what waits for the disk, or while the other is taken: what a volume needs is opened before it is put into the table, and
// ended if there is no room for it then.
package exports
