package nfs4

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/podnas/podnas/statedir"
)

// runFile is beside the roster, and has the number of the process that has served the disk last. Each writes
// another one before it serves, and names it in what it hands over. So a handover is of use for the next process alone:
// one that was put back from a backup has the number of an older one.
const runFile = "run"

// runMax bounds the file: rand.Text has 26 bytes.
const runMax = 64

// errOtherRun is that a handover is not of the process that has served the disk last.
var errOtherRun = errors.New("it is of an older run: another podnas has served this disk since")

// run is the number of this process, and of the one before.
type run struct {
	dir    *statedir.Dir
	before string // empty: there is none, as a podnas of an earlier version was the last
	own    string // empty: it is not on the disk
}

// openRun reads who has served last.
func openRun(path string, reserve *statedir.Reserve, log *slog.Logger) (run, error) {
	folder, err := os.Open(path)
	if err != nil {
		return run{}, fmt.Errorf("number of the run: %w", err)
	}
	r := run{dir: statedir.Of(folder, reserve, log)}
	if err := r.dir.RemoveTemporary(); err != nil {
		return run{}, errors.Join(fmt.Errorf("what was half written: %w", err), r.dir.Close())
	}
	b, err := r.dir.Read(runFile, runMax)
	switch {
	case err == nil && len(b) > 0:
		r.before = string(b)
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, fs.ErrPermission):
		return run{}, errors.Join(fmt.Errorf("number of the run: %w", err), r.dir.Close())
	default:
		r.before = "damaged" // no run has it
		if err == nil {
			err = errors.New("it is empty")
		}
		if err := r.dir.SetAside(runFile, err); err != nil {
			return run{}, errors.Join(fmt.Errorf("number of the run: %w", err), r.dir.Close())
		}
	}
	return r, nil
}

// begin makes what was handed over before void. On a disk that has no room, nothing can be handed over to the
// next process, unless there is room in the end.
func (r *run) begin() error {
	if r.record() == nil {
		return nil
	}
	return r.dir.Remove(runFile)
}

// record makes sure that the number is on the disk.
func (r *run) record() error {
	if r.own != "" {
		return nil
	}
	own := rand.Text()
	if err := r.dir.Write(runFile, []byte(own)); err != nil {
		return err
	}
	r.own = own
	return nil
}
