package nfsbench

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Load is a repeated operation.
type Load struct {
	Name  string
	About string
	// Unit is what is counted: calls, or what one or several calls do.
	Unit string

	// prepare creates the load's fixtures on a server, once.
	prepare []func(context.Context, *benchmark) error
	// refill runs before each phase of a turn, and its time doesn't count. A
	// phase ends when an op returns errPhase, or with the turn.
	refill func(*worker) error
	// op is the operation. It returns how many units it did.
	op func(*worker) (int, error)
	// beside is run by the same number of other workers meanwhile, on the same
	// connections. Their bytes and errors count, but not their operations.
	beside func(*worker) (int, error)
	// finish runs after a turn, and its time doesn't count.
	finish func(*worker) error
	// since41: version 3 has nothing of the kind.
	since41 bool
	// writes: the load writes Config.FileSize with a seed of its own each turn.
	writes bool
}

// errPhase is returned when a worker has used up its refill.
var errPhase = errors.New("the phase is over")

type needs = []func(context.Context, *benchmark) error

// Loads returns all loads.
func Loads() []Load {
	loads := []Load{
		{Name: "null", About: "NULL: the way there and back", Unit: "calls", op: opNull},
		{Name: "getattr", About: "GETATTR of one of 256 files", Unit: "calls", prepare: needs{needFiles}, op: opGetattr},
		{Name: "getattr-beside-syncs", About: "GETATTR while as many calls again are stable WRITEs of 4k on the same connections (the MB/s)", Unit: "calls", prepare: needs{needFiles, needWriteFile, needBeside}, op: opGetattr, beside: opWrite(4<<10, true, true)},
		{Name: "access", About: "ACCESS to one of 256 files", Unit: "calls", prepare: needs{needFiles}, op: opAccess},
		{Name: "lookup", About: "LOOKUP of one of 256 files", Unit: "calls", prepare: needs{needFiles}, op: opLookup},
	}
	sizes := []struct {
		name string
		n    int
	}{{"4k", 4 << 10}, {"128k", 128 << 10}, {"1m", mebibyte}}
	orders := []struct {
		name, about string
		random      bool
	}{{"rand", "at random places", true}, {"seq", "one after the other", false}}
	for _, size := range sizes {
		for _, order := range orders {
			loads = append(loads, Load{
				Name:  "read-" + size.name + "-" + order.name,
				About: fmt.Sprintf("READ of %s %s", size.name, order.about),
				Unit:  "blocks", prepare: needs{needReadFile}, op: opRead(size.n, order.random),
			})
		}
	}
	for _, how := range []struct {
		name   string
		stable bool
	}{{"unstable", false}, {"stable", true}} {
		for _, size := range sizes {
			for _, order := range orders {
				loads = append(loads, Load{
					Name:  "write-" + size.name + "-" + order.name + "-" + how.name,
					About: fmt.Sprintf("WRITE of %s %s, %s", size.name, order.about, how.name),
					Unit:  "blocks", prepare: needs{needWriteFile}, writes: true,
					op: opWrite(size.n, order.random, how.stable), finish: checkWritten(size.n, how.stable),
				})
			}
		}
	}
	return append(loads,
		Load{Name: "write-4k-own-stable", About: "WRITE of 4k at random places, stable, each worker to a file of its own", Unit: "blocks", refill: makeOwnData, writes: true, op: opWriteOwn, finish: checkOwn},
		Load{Name: "create", About: "CREATE of empty files; with 4.1 OPEN and CLOSE in one call", Unit: "calls", prepare: needs{needDirs}, refill: removeMade, op: opCreate, finish: removeMade},
		Load{Name: "rename", About: "RENAME within a directory", Unit: "calls", prepare: needs{needDirs}, refill: makeOne, op: opRename, finish: removeRenamed},
		Load{Name: "remove", About: "REMOVE of empty files", Unit: "calls", prepare: needs{needDirs}, refill: makeFull, op: opRemove, finish: removeMade},
		Load{Name: "readdirplus", About: "READDIRPLUS of a directory of --entries files; with 4.1 READDIR, with the same attributes", Unit: "entries", prepare: needs{needLarge}, refill: rewind, op: opList},
		Load{Name: "open-read-close", About: "one of 256 files of 4k: OPEN, READ, CLOSE; with 3 LOOKUP, ACCESS, READ", Unit: "files", prepare: needs{needSmall}, op: opOpenReadClose},
		Load{Name: "lock-unlock", About: "LOCK and LOCKU of a byte in a file of its own; only with --nfs=4.1 or 4.2", Unit: "locks", prepare: needs{needDirs}, refill: makeOwn, op: opLock, finish: removeOwn, since41: true},
		Load{Name: "smallfile", About: "a file's life: LOOKUP, CREATE, WRITE of 4k, GETATTR, READ, REMOVE; with 4.1 OPEN for CREATE, and CLOSE", Unit: "files", prepare: needs{needDirs}, op: opSmallFile},
		Load{Name: "untar", About: "as tar -x does: MKDIR, and for each file LOOKUP, CREATE, WRITE of 1k to 16k, SETATTR; with 4.1 OPEN for CREATE, and CLOSE", Unit: "files", prepare: needs{needDirs}, refill: removeTree, op: opUntar, finish: removeTree},
	)
}

// Select returns the loads that match one of the patterns and that all targets have, in the
// order of Loads. A pattern is one of path.Match, such as read-*. No pattern means all.
func Select(patterns []string, targets ...Target) ([]Load, error) {
	all := Loads()
	if len(patterns) == 0 {
		patterns = []string{"*"}
	}
	names, wanted := make([]string, len(all)), make([]bool, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	no41 := slices.ContainsFunc(targets, func(t Target) bool { return t.Version.minor() == 0 })
	for _, p := range patterns {
		found, lacking := false, false
		for i, name := range names {
			ok, err := path.Match(p, name)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", p, err)
			}
			if ok && no41 && all[i].since41 {
				lacking = true
				continue
			}
			found = found || ok
			wanted[i] = wanted[i] || ok
		}
		switch {
		case found:
		case lacking:
			return nil, fmt.Errorf("%s is of version 4: use --nfs=4.1", p)
		default:
			return nil, fmt.Errorf("no load is called %q; there are: %s", p, strings.Join(names, ", "))
		}
	}
	i := -1
	return slices.DeleteFunc(all, func(Load) bool { i++; return !wanted[i] }), nil
}
