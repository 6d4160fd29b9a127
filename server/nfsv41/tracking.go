package nfsv41

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// tracking is the list on the disk of clients that have state: RFC 8881 section 8.4.2.1. It is
// a directory with a file for each, named by its client ID.
//
// A file that is damaged is put aside. Its client is not on the list then, so it can't reclaim what it
// had, and nobody waits for it: for who is not on the list that is the rule of the RFC, too. All others are
// as they were.
type tracking struct{ dir *statedir.Dir }

const trackingSuffix = ".json"

// trackingFileMax bounds a file. An owner has 1024 bytes at most.
const trackingFileMax = 16 << 10

// trackingFile is what a file says.
type trackingFile struct {
	Owner    []byte        `json:"owner"`             // co_ownerid
	Address  string        `json:"address,omitempty"` // empty: not known, see state.TrackedClient
	Verifier []byte        `json:"verifier,omitempty"`
	Lease    time.Duration `json:"lease"` // 0: leaseUnsaid
}

// leaseUnsaid is the lease that all builds had which noted none.
const leaseUnsaid = 30 * time.Second

// stands reports whether what a file says holds for a client, too: it is waited for as long, and nowhere else.
func (f *trackingFile) stands(e *state.TrackedClient) bool {
	return string(f.Owner) == e.Owner && (f.Address == "" || f.Address == e.Address) && f.Lease >= e.Lease
}

// handoverFile is beside the entries, and none of them: handover.go.
const handoverFile = "handover.log"

// openTracking makes the directory, and reads who had state when the server ended.
func openTracking(path string, reserve *statedir.Reserve, log *slog.Logger) (*tracking, []state.TrackedClient, error) {
	dir, err := statedir.Open(path, reserve, log)
	if err != nil {
		return nil, nil, fmt.Errorf("clients with state: %w", err)
	}
	r := &tracking{dir}
	had, err := r.read()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("clients with state: %w", err), dir.Close())
	}
	return r, had, nil
}

func (r *tracking) read() (had []state.TrackedClient, err error) {
	names, err := r.dir.Names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if name == handoverFile {
			continue
		}
		if !strings.HasSuffix(name, trackingSuffix) { // half written
			if err := r.dir.Remove(name); err != nil {
				return nil, err
			}
			continue
		}
		entry, err := r.readEntry(name)
		if errors.Is(err, fs.ErrPermission) || statedir.OfProcess(err) { // it is not damaged
			return nil, err
		}
		if err == nil {
			had = append(had, entry)
		} else if err := r.dir.SetAside(name, fmt.Errorf("its client loses what it has open and locked: %w", err)); err != nil {
			return nil, err
		}
	}
	return had, nil
}

// readEntry reads a file.
func (r *tracking) readEntry(name string) (state.TrackedClient, error) {
	id, err := strconv.ParseUint(strings.TrimSuffix(name, trackingSuffix), 16, 64)
	if err != nil || entryName(id) != name {
		return state.TrackedClient{}, errors.New("its name is not that of a client")
	}
	b, err := r.dir.Read(name, trackingFileMax)
	if err != nil {
		return state.TrackedClient{}, err
	}
	var file trackingFile
	if err := json.Unmarshal(b, &file); err != nil {
		return state.TrackedClient{}, err
	}
	if file.Lease < 0 {
		return state.TrackedClient{}, fmt.Errorf("its lease is %v", file.Lease)
	}
	entry := state.TrackedClient{ClientID: id, Owner: string(file.Owner), Address: file.Address, Lease: cmp.Or(file.Lease, leaseUnsaid)}
	copy(entry.Verifier[:], file.Verifier)
	return entry, nil
}

// entryName is the name of a client's file.
func entryName(id uint64) string { return fmt.Sprintf("%016x", id) + trackingSuffix }

// asRoot does something on a goroutine of its own: an operation may be under way on one that
// acts as its caller, to whom the directory is closed.
func asRoot(do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return <-done
}

// Add adds a client.
func (r *tracking) Add(e state.TrackedClient) error { return asRoot(func() error { return r.add(e) }) }

func (r *tracking) add(e state.TrackedClient) error {
	b, err := json.Marshal(trackingFile{[]byte(e.Owner), e.Address, e.Verifier[:], e.Lease})
	if err != nil {
		return err
	}
	err = r.dir.Write(entryName(e.ClientID), b)
	if statedir.IsFull(err) && r.link(&e) {
		return r.dir.Sync()
	}
	return err
}

// link gives another client's file of the same owner a second name: on a full disk a client that
// had state before a restart can still reclaim it.
func (r *tracking) link(e *state.TrackedClient) bool {
	names, err := r.dir.Names()
	if err != nil {
		return false
	}
	for _, name := range names {
		had, err := r.dir.Read(name, trackingFileMax)
		var file trackingFile
		if err != nil || !strings.HasSuffix(name, trackingSuffix) || json.Unmarshal(had, &file) != nil || !file.stands(e) {
			continue
		}
		if err := r.dir.Link(name, entryName(e.ClientID)); err == nil || errors.Is(err, os.ErrExist) {
			return true
		}
	}
	return false
}

// Remove removes clients, with one sync for all: the end of a grace period can have thousands.
func (r *tracking) Remove(entries ...state.TrackedClient) error {
	return asRoot(func() error { return r.remove(entries...) })
}

func (r *tracking) remove(entries ...state.TrackedClient) error {
	names := make([]string, len(entries))
	for i := range entries {
		names[i] = entryName(entries[i].ClientID)
	}
	return r.dir.Remove(names...)
}

// become has the list be another one, of which it is had.
func (r *tracking) become(want, had []state.TrackedClient) error {
	is, was := byID(want), byID(had)
	for id, e := range is {
		if before, ok := was[id]; ok && before.Owner == e.Owner {
			continue
		}
		if err := r.add(e); err != nil {
			return err
		}
	}
	for id := range was {
		if _, ok := is[id]; ok {
			continue
		}
		if err := r.remove(state.TrackedClient{ClientID: id}); err != nil {
			return err
		}
	}
	return nil
}

func byID(entries []state.TrackedClient) map[uint64]state.TrackedClient {
	m := map[uint64]state.TrackedClient{}
	for _, e := range entries {
		m[e.ClientID] = e
	}
	return m
}

// forgetHandover removes what the server before has left.
func (r *tracking) forgetHandover() error {
	return r.dir.Remove(handoverFile)
}
