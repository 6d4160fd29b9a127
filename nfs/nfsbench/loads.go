package nfsbench

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/podnas/podnas/nfs/nfs3"
)

// Load is a repeated operation.
type Load struct {
	Name  string
	About string
	// Unit is what is counted: calls, or what one or several calls do.
	Unit string

	// prepare creates the load's fixtures on a server, once.
	prepare []func(context.Context, *session) error
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
	// writes: the load writes Config.FileSize with a seed of its own each turn.
	writes bool
}

// errPhase is returned when a worker has used up its refill.
var errPhase = errors.New("the phase is over")

type needs = []func(context.Context, *session) error

// Loads returns all loads.
func Loads() []Load {
	loads := []Load{
		{Name: "null", About: "NULL: the way there and back", Unit: "calls", op: opNull},
		{Name: "getattr", About: "GETATTR of one of 256 files", Unit: "calls", prepare: needs{needFiles}, op: opGetattr},
		{Name: "getattr-beside-syncs", About: "GETATTR while as many calls again are stable WRITEs of 4k on the same connections (the MB/s)", Unit: "calls", prepare: needs{needFiles, needWriteFile, needBeside}, op: opGetattr, beside: opWrite(4<<10, true, nfs3.FileSync)},
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
		stable nfs3.StableHow
	}{{"unstable", nfs3.Unstable}, {"stable", nfs3.FileSync}} {
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
		Load{Name: "create", About: "CREATE of empty files", Unit: "calls", prepare: needs{needDirs}, refill: removeMade, op: opCreate, finish: removeMade},
		Load{Name: "rename", About: "RENAME within a directory", Unit: "calls", prepare: needs{needDirs}, refill: makeOne, op: opRename, finish: removeRenamed},
		Load{Name: "remove", About: "REMOVE of empty files", Unit: "calls", prepare: needs{needDirs}, refill: makeFull, op: opRemove, finish: removeMade},
		Load{Name: "readdirplus", About: "READDIRPLUS of a directory of --entries files", Unit: "entries", prepare: needs{needLarge}, refill: rewind, op: opList},
		Load{Name: "smallfile", About: "a file's life: LOOKUP, CREATE, WRITE of 4k, GETATTR, READ, REMOVE", Unit: "files", prepare: needs{needDirs}, op: opSmallFile},
		Load{Name: "untar", About: "as tar -x does: MKDIR, and for each file LOOKUP, CREATE, WRITE of 1k to 16k, SETATTR", Unit: "files", prepare: needs{needDirs}, refill: removeTree, op: opUntar, finish: removeTree},
	)
}

// Select returns the loads that match one of the patterns, in the order of Loads.
// A pattern is one of path.Match, such as read-*. No pattern means all.
func Select(patterns []string) ([]Load, error) {
	all := Loads()
	if len(patterns) == 0 {
		return all, nil
	}
	wanted := make([]bool, len(all))
	for _, p := range patterns {
		found := false
		for i := range all {
			ok, err := path.Match(p, all[i].Name)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", p, err)
			}
			found = found || ok
			wanted[i] = wanted[i] || ok
		}
		if !found {
			names := make([]string, len(all))
			for i := range all {
				names[i] = all[i].Name
			}
			return nil, fmt.Errorf("no load is called %q; there are: %s", p, strings.Join(names, ", "))
		}
	}
	i := -1
	return slices.DeleteFunc(all, func(Load) bool { i++; return !wanted[i] }), nil
}
