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
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/quota"
)

// The state directory and its contents, relative to the root of the disk.
const (
	StateDir      = ".podnas"
	InstanceFile  = StateDir + "/instance.json" // the identity, and the key of the file handles
	ControlSocket = StateDir + "/control.sock"  // of package control
	UsageDir      = StateDir + "/usage"         // what counted volumes use, kept by the server
	IndexDir      = StateDir + "/index"         // where the files of volumes are, kept by the server
	ClientsDir    = StateDir + "/clients"       // which clients of NFSv4 have something open or locked, kept by the server
	RemovedDir    = StateDir + "/removed"       // files that were removed while clients of NFSv4 have them open, kept by the server
	ModesDir      = StateDir + "/modes"         // modes of files that are wider for a moment, kept by the server
	lockFile      = StateDir + "/lock"
	ReserveDir    = StateDir + "/reserve" // room for all of these on a full disk
	volumesDir    = StateDir + "/volumes"
	archiveDir    = StateDir + "/archive"
	trashDir      = StateDir + "/trash"
)

// Exporter makes volumes accessible to clients. When Unexport returns, no client's
// call is running in the volume, and none will.
type Exporter interface {
	// Check returns an error if a volume with these options can't be exported. It is
	// called before the volume is created.
	Check(Options) error
	Export(Volume) error
	Unexport(Volume)
}

// Counter is the server, if it counts the usage of volumes and enforces their
// limits.
type Counter interface {
	// SetLimit enforces the volume's current size and inode limit.
	SetLimit(Volume)
	// Usage returns the usage of an exported volume.
	Usage(Volume) quota.Usage
}

// projects is *quota.Projects.
type projects interface {
	Assign(dir *os.File, id uint32) error
	Assigned(dir *os.File, id uint32) (bool, error)
	AssignTree(ctx context.Context, dir *os.File, id uint32) (int, error)
	SetLimit(id uint32, limit quota.Limit) error
	Usage(id uint32) (quota.Usage, error)
	Usages() (map[uint32]quota.Usage, error)
}

// Config says how to open a Store. Root, Exports and Log are needed.
type Config struct {
	Root    string // the directory that holds the volumes
	Exports Exporter
	Quota   quota.Choice // what enforces sizes; the zero Choice: nothing
	Counter Counter      // nil: the server counts nothing
	// Snapshots takes snapshots; nil: there are none.
	Snapshots Snapshotter
	// Overcommit limits the sum of all volumes' sizes to that many times the size of
	// the disk. 0: a volume must only fit into the free space.
	Overcommit float64
	// NewIdentity is the identity of a disk that has lost its own, or RandomIdentity. If it is
	// empty, such a disk is not opened.
	NewIdentity string
	// Handles is Volume.Handles of new volumes, and EarlierHandles of those whose record has none.
	Handles, EarlierHandles string
	// CountOnce counts repeated failures with the same reason once. It is for a caller
	// that retries every second.
	CountOnce bool
	Now       func() time.Time // the clock of schedules; nil: time.Now
	Log       *slog.Logger
}

// Store manages the volumes of one disk. Its methods may be called concurrently.
type Store struct {
	root        *os.Root
	state       *statedir.Dir     // StateDir
	room        *statedir.Reserve // for a full disk; nil: there is none
	lock        *os.File
	exports     Exporter
	choice      quota.Choice
	quota       projects // nil: the kernel enforces no limit
	counter     Counter
	snapshotter Snapshotter // Config.Snapshots
	overcommit  float64
	countOnce   bool
	// handles and earlierHandles are those of Config.
	handles        string
	earlierHandles string
	// newIdentity is Config.NewIdentity.
	newIdentity string
	log         *slog.Logger
	instance    instance
	original    string // the root that this one is a copy of, see bindToStateDir; empty if of none
	// step is called after each change of the disk. Tests stop there.
	step func(done string)

	names nameLocks  // held while a volume of that name is created or changed
	tree  sync.Mutex // held while directories outside of volumes are created or removed

	mu sync.Mutex
	// +checklocks:mu
	records map[string]*record // by name; all of volumes/, and those being created
	// +checklocks:mu
	archived []*record // what is in archive/
	// +checklocks:mu
	refused []refused // records that are not used
	// +checklocks:mu
	lost []string // directories whose records are gone, see Lost
	// +checklocks:mu
	copies map[string]*copying // by name
	// +checklocks:mu
	failed map[string]error // why a copy failed, for the next Create
	// +checklocks:mu
	markings map[string]*marking // by name
	// +checklocks:mu
	projects map[uint32]bool // in use by a record
	// +checklocks:mu
	lastID uint32 // the project assigned last
	// +checklocks:mu
	trashed []*record // still to be emptied, oldest first
	// +checklocks:mu
	trashedTrees []*trashedTree // likewise, beside those
	// +checklocks:mu
	snapshots map[uint64][]*snapshotRecord // the complete ones, by their volume's ID
	// +checklocks:mu
	views map[snapshotID][]string // names, by what they show
	// +checklocks:mu
	takings map[uint64]*taking // by their volume's ID
	// +checklocks:mu
	badSnapshots []badSnapshot // records that are not used
	// +checklocks:mu
	restorings map[uint64]*restoring // by volume

	// showing is held, by volume, while clients are told which snapshots there are, so that the last word is the right one.
	showing nameLocks

	volumesEmptier emptier // of trashed
	treesEmptier   emptier // of trashedTrees

	activity   activity
	schedules  schedules
	giving     room
	copySlots  *semaphore.Weighted
	markSlot   *semaphore.Weighted
	background context.Context // of copying, marking and emptying
	stop       context.CancelFunc
	working    sync.WaitGroup

	adoptAtOnce time.Duration // a test's is shorter
}

// Open locks a disk, creates its state directory if it is new, finishes or undoes
// interrupted operations, exports every volume, and continues to empty the trash.
func Open(cfg Config) (*Store, error) {
	s, err := newStore(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Quota.Projects != nil {
		s.quota = cfg.Quota.Projects
	}
	return s.open(cfg.Root)
}

func newStore(cfg Config) (*Store, error) {
	root, err := openRoot(cfg.Root)
	if err != nil {
		return nil, err
	}
	return &Store{
		root:           root,
		exports:        cfg.Exports,
		choice:         cfg.Quota,
		counter:        cfg.Counter,
		snapshotter:    cfg.Snapshots,
		overcommit:     cfg.Overcommit,
		countOnce:      cfg.CountOnce,
		handles:        cfg.Handles,
		earlierHandles: cfg.EarlierHandles,
		log:            cfg.Log,
		newIdentity:    cfg.NewIdentity,
		step:           func(string) {},
		records:        map[string]*record{},
		copies:         map[string]*copying{},
		failed:         map[string]error{},
		markings:       map[string]*marking{},
		snapshots:      map[uint64][]*snapshotRecord{},
		views:          map[snapshotID][]string{},
		takings:        map[uint64]*taking{},
		restorings:     map[uint64]*restoring{},
		adoptAtOnce:    adoptAtOnce,
		copySlots:      semaphore.NewWeighted(copiesAtOnce),
		markSlot:       semaphore.NewWeighted(1),
		projects:       map[uint32]bool{},
		schedules:      newSchedules(cfg.Now),
		giving:         room{look: make(chan struct{}, 1)},

		volumesEmptier: newEmptier(),
		treesEmptier:   newEmptier(),
	}, nil
}

// openRoot opens the directory of the volumes. It does not create it: if it is
// missing, the path is wrong, or the disk is not mounted.
func openRoot(name string) (*os.Root, error) {
	root, err := os.OpenRoot(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the root of the disk, %s, does not exist: mount the disk there, create the directory, or name another one (--root)", name)
	}
	if err != nil {
		return nil, fmt.Errorf("open the root of the disk: %w", err)
	}
	return root, nil
}

// open loads the disk and starts the background work.
func (s *Store) open(name string) (*Store, error) {
	s.background, s.stop = context.WithCancel(context.Background())
	if err := s.load(); err != nil {
		err = explainDenied(s.root, err)
		return nil, errors.Join(fmt.Errorf("open the disk %s: %w", name, err), s.Close())
	}
	s.working.Go(func() { s.volumesEmptier.run(s.background, s.emptyVolume) })
	s.working.Go(func() { s.treesEmptier.run(s.background, s.emptyTree) })
	s.working.Go(func() { s.room.Run(s.background) })
	return s, nil
}

// Close stops the background work and unlocks the disk. The next Open continues
// with the trash and the copies. The caller must end the exports.
func (s *Store) Close() error {
	s.stop()
	s.working.Wait()
	if s.lock != nil {
		_ = s.lock.Close() // holds no data; closing it unlocks
	}
	if s.state != nil {
		_ = s.state.Close() // all is synced
	}
	return errors.Join(s.room.Close(), s.root.Close())
}

// Reserve returns the room that is left for podnas on a full disk. It may be nil.
func (s *Store) Reserve() *statedir.Reserve { return s.room }

// Identity returns the disk's identity, which is unique and never changes.
func (s *Store) Identity() string { return s.instance.Identity }

// HandleKey returns the secret that signs the file handles of this disk.
func (s *Store) HandleKey() []byte { return s.instance.HandleKey }

// Get returns the volume of a name. Its errors are ErrNotFound, and ErrRecord if there may be one.
func (s *Store) Get(name string) (v Volume, err error) {
	defer s.explain(name, &err)
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.records[name]
	if !ok || r.State != ready {
		return Volume{}, notFound(name)
	}
	return r.Volume, nil
}

// List returns all volumes, sorted by name. Those of Unserved, with the state NotServed, are among them.
func (s *Store) List() []Volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	volumes := make([]Volume, 0, len(s.records))
	for _, name := range slices.Sorted(maps.Keys(s.records)) {
		if r := s.records[name]; r.State == ready {
			volumes = append(volumes, r.Volume)
		}
	}
	return volumes
}

// Served returns the volumes that clients can mount, sorted by name.
func (s *Store) Served() []Volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	volumes := make([]Volume, 0, len(s.records))
	for _, name := range slices.Sorted(maps.Keys(s.records)) {
		if r := s.records[name]; r.State == ready && r.unserved == nil {
			volumes = append(volumes, r.Volume)
		}
	}
	return volumes
}

// Space is the usage of a disk. Sizes are bytes.
type Space struct {
	Size, Free int64
	Promised   int64 // the sum of all volumes' sizes, including kept ones, and of what is promised for snapshots
	// Total and free inodes; 0 if there is no limit (btrfs).
	Inodes, InodesFree uint64
	InodesPromised     int64 // the sum of all volumes' inode limits, including kept ones
	// Overcommit limits Promised if it is not 0, see Config.
	Overcommit float64
}

// Space returns the usage of the disk. If it can't be read, only what is promised is set.
func (s *Store) Space() (Space, error) {
	s.mu.Lock()
	space := Space{Promised: s.promisedLocked(), InodesPromised: s.promisedInodesLocked(), Overcommit: s.overcommit}
	s.mu.Unlock()
	st, err := s.statfs()
	if err != nil {
		return space, err
	}
	space.Size, space.Free = int64(st.Blocks)*st.Bsize, int64(st.Bavail)*st.Bsize
	space.Inodes, space.InodesFree = st.Files, st.Ffree
	return space, nil
}

func (s *Store) statfs() (st unix.Statfs_t, err error) {
	d, err := s.root.Open(".")
	if err != nil {
		return st, err
	}
	defer d.Close()
	if err := unix.Fstatfs(int(d.Fd()), &st); err != nil {
		return st, fmt.Errorf("statfs: %w", err)
	}
	return st, nil
}

// load repairs the state directory after a crash, and loads it. Nobody else has the Store yet.
//
// +checklocksignore
func (s *Store) load() error {
	if err := s.openState(); err != nil {
		return err
	}
	if err := s.takeLock(); err != nil {
		return err
	}
	s.openReserve()
	if err := s.makeStateDirs(); err != nil {
		return err
	}
	var all []*record
	var disks []string
	for _, dir := range []string{trashDir, archiveDir, volumesDir} {
		found, err := s.readRecords(dir)
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	for _, r := range all {
		disks = append(disks, r.Disk)
	}
	if err := s.loadInstance(disks); err != nil {
		return err
	}
	// Load copies last, because they wait for their sources.
	var others, copies []*record
	for _, r := range s.withoutContradictions(all) {
		s.projects[r.Project] = true
		switch dir := path.Dir(r.file); {
		case dir == trashDir:
			_, here := s.root.Lstat(r.Path)
			r.inPlace = here == nil && s.isGone(r.keptIn(trashDir))
			s.trashed = append(s.trashed, r)
		case dir == archiveDir:
			s.archived = append(s.archived, r)
		case r.State == copyingState:
			copies = append(copies, r)
		default:
			others = append(others, r)
		}
	}
	records := slices.Concat(others, copies)
	for _, r := range records {
		s.records[r.Name] = r
		if r.View {
			s.addViewLocked(r)
		}
	}
	s.loadSnapshots()
	limits, err := s.projectUsages()
	if err != nil {
		return err
	}
	for _, r := range records {
		if err := s.resume(r, limits[r.Project]); err != nil {
			// All others are served.
			s.log.Error("volume: can't be loaded, so it is not served", "volume", r.Name, "path", r.Path, "err", err)
			s.mu.Lock()
			r.unserved = err
			s.mu.Unlock()
		}
	}
	s.findLost()
	return nil
}

// makeStateDirs makes the directories of records. What is in the place of the archive or the trash is put
// aside.
func (s *Store) makeStateDirs() error {
	_, noRecords := s.root.Lstat(volumesDir)
	if _, err := s.root.Lstat(InstanceFile); err == nil && errors.Is(noRecords, os.ErrNotExist) {
		return fmt.Errorf("%s/%s, the folder with the records of the volumes, is missing: restore it from a backup of the disk. Without a backup, create it, start podnas, and adopt the directories with 'podnas volume adopt'",
			s.root.Name(), volumesDir)
	}
	if info, err := s.root.Lstat(volumesDir); err == nil && !info.IsDir() {
		return fmt.Errorf("%s is not a directory: put the one back that podnas has made on this disk", volumesDir)
	}
	above, err := openDir(s.root, StateDir)
	if err != nil {
		return err
	}
	defer above.Close()
	for _, dir := range []string{volumesDir, archiveDir, trashDir} {
		d, err := statedir.OpenIn(above, path.Base(dir), s.room, s.log)
		if err != nil {
			return err
		}
		if err := errors.Join(d.RemoveTemporary(), d.Close()); err != nil {
			return fmt.Errorf("remove what an interrupted write left: %w", err)
		}
	}
	return nil
}

// openState opens the state directory, and makes it on a new disk. What is in its place is not put aside: without
// it no volume is known.
func (s *Store) openState() error {
	if info, err := s.root.Lstat(StateDir); err == nil && !info.IsDir() {
		return fmt.Errorf("%s is not a directory: put the one back that podnas has made on this disk", StateDir)
	}
	disk, err := s.root.Open(".")
	if err != nil {
		return err
	}
	defer disk.Close()
	if s.state, err = statedir.OpenIn(disk, StateDir, nil, s.log); err != nil {
		return err
	}
	return nil
}

// openReserve opens the reserve, once this process has the disk.
func (s *Store) openReserve() {
	var err error
	s.room, err = statedir.OpenReserve(filepath.Join(s.root.Name(), ReserveDir), s.log)
	if err != nil {
		s.log.Warn("disk: there is no reserve for podnas on this disk: when it is full, volumes can't be deleted", "err", err)
	}
	if err := s.state.RemoveTemporary(); err != nil {
		s.log.Warn("disk: can't remove what was half written", "err", err)
	}
}

// rename renames something on the disk, which may be full.
func (s *Store) rename(from, to string) error {
	return s.room.Do(func() error { return s.root.Rename(from, to) })
}

func (s *Store) takeLock() error {
	lock, err := s.state.MakeFile(path.Base(lockFile), os.O_WRONLY)
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

// resume continues with one record at Open. u is the kernel's usage and limit of
// its project. With an error the volume is not served.
func (s *Store) resume(r *record, u quota.Usage) error {
	log := s.log.With("volume", r.Name)
	switch r.State {
	case creating:
		if info, err := s.root.Lstat(r.Path); !r.summed && err == nil && info.Mode().Perm() != newDirMode {
			return fmt.Errorf("its state is %s, but its directory is complete, and the record has no checksum that would show whether the state is right: correct the state to %s if the volume was in use, or move the record away", creating, ready)
		}
		log.Info("volume: creation was interrupted, undoing it")
		return s.undo(r)
	case adopting:
		log.Info("volume: adoption was interrupted, so its directory belongs to no volume; it can be adopted again")
		return s.forget(r)
	case retained:
		return nil
	case archived:
		return s.archive(r)
	}
	if r.View {
		return s.resumeView(r)
	}
	if err := s.servable(r.Path); err != nil {
		return err
	}
	if r.State == copyingState {
		if err := s.hasSource(r); err != nil {
			return err
		}
	}
	marked, err := s.restoreLimit(r, u, log)
	if err != nil {
		return err
	}
	if r.State == copyingState {
		log.Info("volume: continuing the copy", "from", r.source())
		s.startCopy(r)
		return nil
	}
	if r.Handles == "" && s.earlierHandles != "" {
		r.Handles = s.earlierHandles
		if err := s.write(r); err != nil {
			log.Warn("volume: the form of its file handles can't be recorded; the next start tries again", "form", r.Handles, "err", err)
		}
	}
	if err := s.export(r.Volume); err != nil {
		return err
	}
	s.limitWhenCounted(r.Volume)
	if !marked {
		s.startMarking(r.Volume)
	}
	return nil
}

// recordFile is the path of a volume's record.
func recordFile(name string) string { return path.Join(volumesDir, name+".json") }

// newID returns the ID of a new volume.
func newID() uint64 {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails, see crypto/rand
		if id := binary.BigEndian.Uint64(b[:]); id != 0 {
			return id
		}
	}
}
