package volume

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/quota"
)

// The state directory and what is in it, relative to the root of the disk.
const (
	stateDir     = ".podnas"
	instanceFile = stateDir + "/instance.json"
	lockFile     = stateDir + "/lock"
	probeFile    = stateDir + "/probe"
	volumesDir   = stateDir + "/volumes"
	trashDir     = stateDir + "/trash"
)

// Exporter makes volumes reachable for clients. When Unexport returns, no call
// of a client is under way in the volume and none will come.
type Exporter interface {
	Export(Volume) error
	Unexport(Volume)
}

// Config says how to open a Store. Root, Exports and Log are needed.
type Config struct {
	Root    string // the directory that holds the volumes
	Exports Exporter
	Quota   *quota.Projects // nil: no limit is enforced
	Log     *slog.Logger
}

// Store is the volumes of one disk. Its methods may be called concurrently.
type Store struct {
	root     *os.Root
	lock     *os.File
	exports  Exporter
	quota    *quota.Projects
	log      *slog.Logger
	instance instance

	names nameLocks // held while a volume of that name is made or deleted

	mu       sync.Mutex
	records  map[string]*record // by name; what is creating or ready
	projects map[uint32]bool    // in use by a record in volumes/ or trash/
	lastID   uint32             // the project given last
	trashed  []record           // still to be emptied, oldest first

	wake     chan struct{} // tells the emptier that trashed has grown
	stop     context.CancelFunc
	emptying sync.WaitGroup
}

// instance is instance.json.
type instance struct {
	// Identity tells this disk from every other.
	Identity string `json:"identity"`
	// HandleKey signs file handles. Whoever has it can make handles of any file.
	HandleKey []byte `json:"handleKey"`
}

// Open takes possession of a disk, makes its state directory if it is new,
// finishes or undoes what was interrupted, exports every volume, and goes on
// emptying the trash.
func Open(cfg Config) (*Store, error) {
	if err := os.MkdirAll(cfg.Root, 0o755); err != nil {
		return nil, fmt.Errorf("make the root of the disk: %w", err)
	}
	root, err := os.OpenRoot(cfg.Root)
	if err != nil {
		return nil, fmt.Errorf("open the root of the disk: %w", err)
	}
	s := &Store{
		root:     root,
		exports:  cfg.Exports,
		quota:    cfg.Quota,
		log:      cfg.Log,
		records:  map[string]*record{},
		projects: map[uint32]bool{},
		wake:     make(chan struct{}, 1),
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("open the disk %s: %w", cfg.Root, err), s.Close())
	}
	s.emptying.Go(func() { s.emptyTrash(ctx) })
	return s, nil
}

// Close stops the background work and gives the disk free. What is in the trash
// stays there for the next Open. The exports are the caller's to end.
func (s *Store) Close() error {
	s.stop()
	s.emptying.Wait()
	if s.lock != nil {
		_ = s.lock.Close() // holds no data; closing it unlocks
	}
	return s.root.Close()
}

// Identity tells this disk from every other, for as long as it lives.
func (s *Store) Identity() string { return s.instance.Identity }

// HandleKey is the secret that file handles of this disk are signed with.
func (s *Store) HandleKey() []byte { return s.instance.HandleKey }

// Get finds a volume by its name.
func (s *Store) Get(name string) (Volume, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.records[name]
	if !ok || r.State != ready {
		return Volume{}, fmt.Errorf("%s: %w", name, ErrNotFound)
	}
	return r.Volume, nil
}

// List returns all volumes in the order of their names.
func (s *Store) List() []Volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	var volumes []Volume
	for _, name := range slices.Sorted(maps.Keys(s.records)) {
		if r := s.records[name]; r.State == ready {
			volumes = append(volumes, r.Volume)
		}
	}
	return volumes
}

// Free is how many bytes a volume could still be given, as statfs(2) tells it.
func (s *Store) Free() (int64, error) {
	d, err := s.root.Open(".")
	if err != nil {
		return 0, err
	}
	defer d.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.Fd()), &st); err != nil {
		return 0, fmt.Errorf("statfs: %w", err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// CheckWrite makes sure that the disk takes a write. A full disk is no failure:
// clients must be able to read, and to delete.
func (s *Store) CheckWrite() error {
	f, err := s.root.OpenFile(probeFile, os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.WriteAt([]byte("podnas\n"), 0)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return nil
	}
	return err
}

// load brings the state directory into order and into memory.
func (s *Store) load() error {
	for _, dir := range []string{stateDir, volumesDir, trashDir} {
		if err := s.root.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if err := s.takeLock(); err != nil {
		return err
	}
	if err := s.loadInstance(); err != nil {
		return err
	}
	trashed, err := readRecords(s.root, trashDir, s.log)
	if err != nil {
		return err
	}
	s.trashed = trashed
	for i := range trashed {
		s.projects[trashed[i].Project] = true
		if err := s.moveToTrash(&trashed[i].Volume); err != nil {
			s.log.Error("volume: can't go on with its deletion", "volume", trashed[i].Name, "err", err)
		}
	}
	records, err := readRecords(s.root, volumesDir, s.log)
	if err != nil {
		return err
	}
	for i := range records {
		if err := s.resume(&records[i]); err != nil {
			// All others are served.
			s.log.Error("volume: can't be brought back", "volume", records[i].Name, "err", err)
		}
	}
	return nil
}

func (s *Store) takeLock() error {
	lock, err := s.root.OpenFile(lockFile, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	s.lock = lock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return ErrInUse
		}
		return fmt.Errorf("lock %s: %w", lockFile, err)
	}
	return nil
}

func (s *Store) loadInstance() error {
	err := readJSON(s.root, instanceFile, &s.instance)
	if errors.Is(err, os.ErrNotExist) {
		key := make([]byte, 32)
		_, _ = rand.Read(key) // never fails, see crypto/rand
		s.instance = instance{Identity: uuid.NewString(), HandleKey: key}
		s.log.Info("disk: new, given an identity", "identity", s.instance.Identity)
		return writeJSON(s.root, instanceFile, s.instance)
	}
	if err == nil && (s.instance.Identity == "" || len(s.instance.HandleKey) != 32) {
		return fmt.Errorf("%s is damaged: restore it from a backup of the disk; without it no mounted file handle is valid", instanceFile)
	}
	return err
}

// resume brings one record back to life at Open.
func (s *Store) resume(r *record) error {
	s.projects[r.Project] = true
	log := s.log.With("volume", r.Name)
	if r.State == creating {
		log.Info("volume: its creation was interrupted, undoing it")
		return s.undo(r)
	}
	s.records[r.Name] = r
	if info, err := s.root.Lstat(r.Path); err != nil || !info.IsDir() {
		log.Error("volume: its directory is missing, it is not served; put the directory back, or delete the volume", "path", r.Path, "err", err)
		return nil
	}
	switch {
	case s.quota != nil && r.Project != 0:
		if err := s.quota.SetLimit(r.Project, uint64(r.Size)); err != nil {
			return err
		}
	case s.quota != nil:
		log.Warn("volume: was made without a quota and has none")
	case r.Project != 0:
		log.Warn("volume: its quota can't be looked after while quotas are off", "project", r.Project)
	}
	return s.exports.Export(r.Volume)
}

// recordFile is where the record of a volume is.
func recordFile(name string) string { return path.Join(volumesDir, name+".json") }

// newID makes a volume's number.
func newID() uint64 {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails, see crypto/rand
		if id := binary.BigEndian.Uint64(b[:]); id != 0 {
			return id
		}
	}
}

// newProject reserves a project that no record and nothing else on the disk
// uses. The caller holds s.mu.
func (s *Store) newProject() (uint32, error) {
	if s.quota == nil {
		return 0, nil
	}
	const firstProject = 0x10000 // below are those that people give by hand
	if s.lastID == 0 {
		s.lastID = firstProject - 1
		for id := range s.projects {
			s.lastID = max(s.lastID, id)
		}
	}
	for range len(s.projects) + 1000 { // more in a row are never in use by others
		if s.lastID++; s.lastID < firstProject {
			s.lastID = firstProject // went past 2^32-1
		}
		if s.projects[s.lastID] {
			continue
		}
		free, err := s.quota.Free(s.lastID)
		if err != nil {
			return 0, err
		}
		if free {
			s.projects[s.lastID] = true
			return s.lastID, nil
		}
	}
	return 0, errors.New("found no free project id")
}

// nameLocks lets one caller at a time work on a name.
type nameLocks struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the name is given free
}

// lock waits for the name and returns what gives it free.
func (l *nameLocks) lock(ctx context.Context, name string) (func(), error) {
	for {
		l.mu.Lock()
		if l.held == nil {
			l.held = map[string]chan struct{}{}
		}
		busy, ok := l.held[name]
		if !ok {
			done := make(chan struct{})
			l.held[strings.Clone(name)] = done
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.held, name)
				l.mu.Unlock()
				close(done)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
