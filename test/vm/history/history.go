// Package history checks what clients of a file system saw while faults went on around them:
// registers that are read and written, locks with a register that only the holder writes, and
// a file that is appended to under a lock. Registers and locks are checked for linearizability
// by porcupine.
//
// What the checks allow, because NFS does:
//
//   - A call that failed may have been carried out, or not.
//   - A WRITE that was not answered is sent again. When the session that would know its answer
//     is gone (the server was killed, or the lease was over), it is carried out twice.
//   - After a write failed on the disk, what is read is the old or the new, and may change,
//     until somebody writes successfully.
//   - A lock is lost when its node was cut off for longer than a lease. Its holder can't see
//     that, but no read or write through the file that it has locked succeeds any more. So the
//     lock has one holder at a time by what holders do with the file, not by what they believe.
package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Kind is what a client did.
type Kind string

// The kinds. Read and Write are of a register without a lock if Holder is false.
const (
	Read    Kind = "read"
	Write   Kind = "write"
	Lock    Kind = "lock"    // it was waited for, or was free
	Busy    Kind = "busy"    // another had the lock
	Unlock  Kind = "unlock"  // or the file was closed
	Append  Kind = "append"  // a line, under the lock of the file
	mayLose Kind = "mayLose" // from here on the holder may have lost the lock
	shadow  Kind = "shadow"  // what is written may be read from here on, until the next write
)

// Op is a call of a client, with its times by one clock.
type Op struct {
	Kind   Kind
	Client int    // who makes one call after the other
	Node   int    // the client's; counted from 0
	Key    string // the register, the lock or the file
	Holder bool   // under the lock of the key
	Value  int64  // what was written, appended or read; 0 if the register is empty
	Call   time.Duration
	Return time.Duration
	Err    string // empty: it succeeded
}

func (o Op) String() string {
	text := fmt.Sprintf("%9.3f-%9.3f s  client %d of node %d: %s %s", o.Call.Seconds(), o.Return.Seconds(), o.Client, o.Node, o.Kind, o.Key)
	if o.Value != 0 {
		text += fmt.Sprint(" ", o.Value)
	}
	if o.Err != "" {
		text += ": " + o.Err
	}
	return text
}

// Fault is something that was done to the server, its disk or a node.
type Fault struct {
	Name       string
	From       time.Duration
	Until      time.Duration // when all clients went on as if nothing had been
	DiskFails  bool          // calls may fail
	Repeats    bool          // sessions may be lost, so that a WRITE is carried out twice
	LosesLocks []int         // the nodes that may lose their locks
}

func (f Fault) during(o Op) bool { return o.Return >= f.From && o.Call <= f.Until }

func (f Fault) loses(o Op) bool { return f.during(o) && slices.Contains(f.LosesLocks, o.Node) }

// Violation is what must not be.
type Violation struct {
	What string
	Near []Op
	// Draw writes an interactive picture of the history to a file; nil if there is none.
	Draw func(path string) error
}

func (v Violation) String() string {
	lines := []string{v.What}
	for _, o := range v.Near {
		lines = append(lines, "  "+o.String())
	}
	return strings.Join(lines, "\n")
}

// Check checks registers and locks. Each key's calls have the patience that a check may take;
// a check that takes longer is a violation, since nothing is known then.
func Check(ops []Op, faults []Fault, patience time.Duration) []Violation {
	violations := unexplained(ops, faults)
	keys := map[string][]Op{}
	for _, o := range ops {
		if o.Kind != Append {
			keys[o.Key] = append(keys[o.Key], o)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		of := keys[key]
		history := operations(of, faults)
		if porcupine.CheckOperationsTimeout(model(), history, patience) == porcupine.Ok {
			continue
		}
		result, info := porcupine.CheckOperationsVerbose(model(), history, patience)
		violations = append(violations, Violation{
			What: fmt.Sprintf("%s is not linearizable (%s); the calls around the first that no order explains:", key, result),
			Near: near(info, of),
			Draw: func(path string) error { return porcupine.VisualizePath(model(), info, path) },
		})
	}
	return violations
}

// unexplained finds calls that had no reason to fail.
func unexplained(ops []Op, faults []Fault) (violations []Violation) {
	for _, o := range ops {
		if o.Err == "" {
			continue
		}
		explained := slices.ContainsFunc(faults, func(f Fault) bool {
			return f.DiskFails && f.during(o) || (o.Holder || o.Kind == Append || o.Kind == Unlock) && f.loses(o)
		})
		if !explained {
			violations = append(violations, Violation{What: "a call failed without a reason:", Near: []Op{o}})
		}
	}
	return violations
}

// operations makes a history for the model of what clients did with one key.
func operations(ops []Op, faults []Fault) (history []porcupine.Operation) {
	seen := map[int64]bool{}
	for _, o := range ops {
		seen[o.Value] = seen[o.Value] || o.Kind == Read && o.Err == ""
	}
	add := func(o Op) {
		history = append(history, porcupine.Operation{ClientId: o.Client, Input: o, Call: int64(o.Call), Return: int64(o.Return)})
	}
	held := map[int]Op{} // by client
	slices.SortStableFunc(ops, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	for _, o := range ops {
		settled := o.Return // nothing of the call happens after this
		for _, f := range faults {
			if f.during(o) {
				settled = max(settled, f.Until)
			}
		}
		switch o.Kind {
		case Write:
			if o.Err == "" {
				add(o)
			}
			if !seen[o.Value] {
				continue // nobody has read it: there is nothing to explain
			}
			o.Kind = shadow
			if o.Err != "" {
				o.Return = settled
				add(o)
				continue
			}
			for _, f := range faults {
				if (f.Repeats || f.DiskFails) && f.during(o) {
					add(o)
				}
			}
		case Lock:
			if o.Err == "" { // else the file is closed, which unlocks what the server may have given
				held[o.Client] = o
				add(o)
			}
		case Busy:
			// Who has lost a lock, or failed to get one, is in the way of others until the file is
			// closed, and so is who has waited for one that is free now.
			excused := slices.ContainsFunc(faults, func(f Fault) bool { return (f.DiskFails || len(f.LosesLocks) > 0) && f.during(o) }) ||
				slices.ContainsFunc(ops, func(other Op) bool {
					return other.Kind == Lock && other.Call < o.Call && other.Return > o.Return && other.Client != o.Client
				})
			if !excused {
				add(o)
			}
		case Unlock:
			lock, ok := held[o.Client]
			if !ok {
				continue
			}
			delete(held, o.Client)
			hold := Op{Kind: mayLose, Client: o.Client, Node: o.Node, Key: o.Key, Call: lock.Call, Return: o.Return}
			for _, f := range faults {
				if f.loses(hold) {
					hold.Call = max(lock.Call, f.From)
					add(hold)
				}
			}
			if o.Err != "" {
				o.Return = settled
			}
			add(o)
		default:
			if o.Err == "" {
				add(o)
			}
		}
	}
	return history
}

// near returns the calls around the first that is in no order that explains the others.
func near(info porcupine.LinearizationInfo, ops []Op) (near []Op) {
	explained := map[time.Duration]bool{} // by time of call
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, linearization := range partition {
			for _, p := range linearization {
				explained[time.Duration(p.Call)] = true
			}
		}
	}
	first := slices.IndexFunc(ops, func(o Op) bool { return o.Err == "" && o.Kind != Busy && !explained[o.Call] })
	if first < 0 {
		return ops
	}
	after := ops[min(len(ops)-1, first+15)].Call
	for i, o := range ops {
		if i >= first-15 && o.Call <= after || i < first && o.Return >= ops[first].Call || o.Value != 0 && o.Value == ops[first].Value {
			near = append(near, o)
		}
	}
	return near
}
