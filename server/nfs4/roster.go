package nfs4

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/podnas/podnas/server/nfs4/state"
)

// roster is the list on the disk of clients that have state: RFC 8881 section 8.4.2.1. It is
// a directory with a file for each, named by its client ID.
type roster struct{ dir string }

const rosterSuffix = ".json"

// rosterFile is what a file says.
type rosterFile struct {
	Owner []byte `json:"owner"` // co_ownerid
}

// openRoster makes the directory, and reads who had state when the server ended.
func openRoster(dir string) (*roster, []state.RosterEntry, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("clients with state: %w", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("clients with state: %w", err)
	}
	r := &roster{dir}
	var had []state.RosterEntry
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), rosterSuffix)
		if f.Name() == handoverFile || f.Name() == witnessFile {
			continue
		}
		if !ok { // half written
			if err := os.Remove(filepath.Join(dir, f.Name())); err != nil {
				return nil, nil, fmt.Errorf("clients with state: %w", err)
			}
			continue
		}
		id, err := strconv.ParseUint(name, 16, 64)
		if err != nil {
			return nil, nil, fmt.Errorf("clients with state: %s is not a client: remove it", filepath.Join(dir, f.Name()))
		}
		b, err := os.ReadFile(r.path(id))
		if err != nil {
			return nil, nil, fmt.Errorf("clients with state: %w", err)
		}
		var file rosterFile
		if err := json.Unmarshal(b, &file); err != nil {
			return nil, nil, fmt.Errorf("clients with state: %s is damaged, remove it; its client then loses what it has open and locked: %w", r.path(id), err)
		}
		had = append(had, state.RosterEntry{ClientID: id, Owner: string(file.Owner)})
	}
	return r, had, nil
}

func (r *roster) path(id uint64) string {
	return filepath.Join(r.dir, fmt.Sprintf("%016x", id)+rosterSuffix)
}

// asRoot does something on a goroutine of its own: an operation may be under way on one that
// acts as its caller, to whom the directory is closed.
func asRoot(do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return <-done
}

// Add adds a client.
func (r *roster) Add(e state.RosterEntry) error { return asRoot(func() error { return r.add(e) }) }

func (r *roster) add(e state.RosterEntry) error {
	b, err := json.Marshal(rosterFile{[]byte(e.Owner)})
	if err != nil {
		return err
	}
	err = r.write(filepath.Base(r.path(e.ClientID)), b)
	if errors.Is(err, syscall.ENOSPC) && r.link(e.ClientID, b) {
		return r.sync()
	}
	return err
}

// write writes a file of the directory, as a whole or not at all, and syncs it. It has a name of
// its own meanwhile: a client's first OPENs come at the same time.
func (r *roster) write(name string, b []byte) error {
	f, err := os.CreateTemp(r.dir, "new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(r.dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return r.sync()
}

// link gives another client's file of the same owner a second name: on a full disk a client that
// had state before a restart can still reclaim it.
func (r *roster) link(id uint64, b []byte) bool {
	files, err := os.ReadDir(r.dir)
	if err != nil {
		return false
	}
	for _, f := range files {
		path := filepath.Join(r.dir, f.Name())
		had, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(had, b) || !strings.HasSuffix(path, rosterSuffix) {
			continue
		}
		if err := os.Link(path, r.path(id)); err == nil || errors.Is(err, os.ErrExist) {
			return true
		}
	}
	return false
}

// Remove removes a client.
func (r *roster) Remove(e state.RosterEntry) error {
	return asRoot(func() error { return r.remove(e) })
}

func (r *roster) remove(e state.RosterEntry) error { return r.removeFile(r.path(e.ClientID)) }

func (r *roster) removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return r.sync()
}

// forgetHandover removes what the server before has left.
func (r *roster) forgetHandover() error { return r.removeFile(filepath.Join(r.dir, handoverFile)) }

// forgetWitness makes the log of the server before void.
func (r *roster) forgetWitness() error { return r.removeFile(filepath.Join(r.dir, witnessFile)) }

func (r *roster) sync() error {
	d, err := os.Open(r.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
