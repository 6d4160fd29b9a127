// Package actas has threads act as the users of calls, so that the kernel checks rights, and says what the
// process itself may do.
//
// # The way of a call
//
//  1. [Squash.Identity] says as whom a caller acts in a volume: as the user that the call names, or as the
//     volume's anonymous user.
//  2. [Users.As] locks the goroutine to its thread, gives the thread that [Identity], and runs a function. Then the
//     thread gets back its own identity.
//  3. The function gets a [Thread]. What the kernel must check the user's rights for takes one, and calls
//     [Thread.MustAct]; so nothing can be done as the process by mistake.
//
// # A process that is not root
//
// [TryRights] tries what the process may do on the disk. If its threads can't act as other users, [Only] is the
// user as whom all is done: Users.As switches no thread then, and [Only.Refuses] says of which volumes the
// options promise clients other users.
//
// There are no locks in this package.
package actas
