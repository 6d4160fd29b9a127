package nfsv41

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/podnas/podnas/internal/statedir"
)

// runFile is beside the client tracking, and has the number of the run that has served the disk last. A run is a process, and those
// that went on with its log after it had died. A handover and a log name theirs, so both are of use as long as nobody else has
// served: one that was put back from a backup has the number of an older run.
const runFile = "run"

// runMax bounds the file: rand.Text has 26 bytes.
const runMax = 64

// errOtherRun is that a handover or a log is not of the run that has served the disk last.
var errOtherRun = errors.New("it is of an older run: another podnas has served this disk since")

// run has the numbers of this run, and of the one before.
type run struct {
	dir    *statedir.Dir
	before string // empty: there is none
	own    string
	onDisk bool // own is
}

// openRun reads who has served last.
func openRun(path string, reserve *statedir.Reserve, log *slog.Logger) (run, error) {
	folder, err := os.Open(path)
	if err != nil {
		return run{}, fmt.Errorf("number of the run: %w", err)
	}
	r := run{dir: statedir.Of(folder, reserve, log), own: rand.Text()}
	if err := r.dir.RemoveTemporary(); err != nil {
		return run{}, errors.Join(fmt.Errorf("what was half written: %w", err), r.dir.Close())
	}
	b, err := r.dir.Read(runFile, runMax)
	switch {
	case err == nil && len(b) > 0:
		r.before = string(b)
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, fs.ErrPermission), statedir.OfProcess(err):
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

// goOn has this process be of the run before.
func (r *run) goOn() { r.own, r.onDisk = r.before, true }

// record makes sure that the number is on the disk. From then on what the run before has left is void.
func (r *run) record() error {
	if r.onDisk {
		return nil
	}
	err := r.dir.Write(runFile, []byte(r.own))
	r.onDisk = err == nil
	return err
}

// forget makes void what names the number, and has another one be this run's, which is not on the disk.
func (r *run) forget() error {
	r.own, r.onDisk = rand.Text(), false
	return r.dir.Remove(runFile)
}
