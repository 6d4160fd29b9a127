package volume

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// instance is instance.json.
type instance struct {
	// Identity is unique to this disk.
	Identity string `json:"identity"`
	// HandleKey signs file handles. With it anybody could forge handles of any file.
	HandleKey []byte `json:"handleKey"`
	// Formerly are identities that the disk had before it lost its instance.json. Its records may
	// name them.
	Formerly []string `json:"formerly,omitempty"`
	// StateDir is the kernel's handle of the state directory in which this file was written, empty if
	// the file system has none. A copy of the disk, file by file, is in another one.
	StateDir []byte `json:"stateDir,omitempty"`

	unknown object // fields of a newer podnas
	summed  bool   // the file has a checksum
}

// MarshalJSON adds the checksum.
func (i instance) MarshalJSON() ([]byte, error) {
	type plain instance
	return encodeSummed(plain(i), i.unknown)
}

// UnmarshalJSON checks the checksum.
func (i *instance) UnmarshalJSON(data []byte) (err error) {
	type plain instance
	i.unknown, i.summed, err = decodeSummed(data, (*plain)(i))
	return err
}

// RandomIdentity, as Config.NewIdentity, stands for an identity that no disk had.
const RandomIdentity = "random"

// CheckNewIdentity returns an error if s can't be Config.NewIdentity.
func CheckNewIdentity(s string) error {
	if s == "" || s == RandomIdentity {
		return nil
	}
	if id, err := uuid.Parse(s); err != nil || id.String() != s {
		return fmt.Errorf("%q is not an identity: use a UUID such as %s, or %s", s, uuid.Nil, RandomIdentity)
	}
	return nil
}

// IdentityOf returns the identity of the disk at root, or "" if it is new. It
// changes nothing.
func IdentityOf(name string) (string, error) {
	root, err := openRoot(name)
	if err != nil {
		return "", err
	}
	defer root.Close()
	i, err := readInstance(root)
	if errors.Is(err, os.ErrNotExist) {
		return "", explainDenied(root, lostIdentity(root))
	}
	return i.Identity, err
}

// lostIdentity returns an error if a disk without an instance.json has records.
func lostIdentity(root *os.Root) error {
	files, disks := 0, []string{}
	for _, dir := range []string{volumesDir, archiveDir, trashDir} {
		names, err := recordFiles(root, dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		files += len(names)
		for _, name := range names {
			if r, err := readRecord(root, path.Join(dir, name)); err == nil {
				disks = append(disks, r.Disk)
			}
		}
	}
	if files == 0 {
		return nil
	}
	is := "that of the PersistentVolumes, in their annotation podnas.io/instance"
	if known := namedDisks(disks); len(known) > 0 {
		is = known[0] + ", the one that the records name"
	}
	return fmt.Errorf("%s/%s, the disk's identity and the key of its file handles, is missing, but the disk has %s: restore it from a backup of the disk. Without a backup, start podnas with --new-identity=UUID, where UUID is the identity that the disk had: %s. With --new-identity=%s its PersistentVolumes belong to another disk. Either way pods that have volumes mounted must be started again",
		root.Name(), InstanceFile, FormatCount(files, "record"), is, RandomIdentity)
}

// namedDisks returns the identities that records name, the most frequent first.
func namedDisks(names []string) []string {
	count := map[string]int{}
	for _, name := range names {
		count[name]++
	}
	delete(count, "") // of records that name none
	var known []string
	for name := range count {
		known = append(known, name)
	}
	slices.SortFunc(known, func(a, b string) int { return cmp.Or(count[b]-count[a], cmp.Compare(a, b)) })
	return known
}

// loadInstance reads the identity, or creates that of a new disk. disks are the identities that the
// disk's records name, "" for each that names none.
func (s *Store) loadInstance(disks []string) error {
	var err error
	s.instance, err = readInstance(s.root)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if s.newIdentity == "" {
			if err := lostIdentity(s.root); err != nil {
				return err
			}
		}
		return s.createInstance(disks)
	case err != nil:
		return err
	}
	// One record may be that of another disk, or say nothing.
	if len(disks) > 1 && !slices.ContainsFunc(disks, s.instance.isOf) {
		return fmt.Errorf("%s is that of another disk, %s: the records here are of the disk %s. Put the right one back, from a backup of this disk",
			InstanceFile, s.instance.Identity, namedDisks(disks)[0])
	}
	return s.bindToStateDir()
}

// isOf reports whether a record that names a disk is of this one.
func (i *instance) isOf(disk string) bool {
	return disk == "" || disk == i.Identity || slices.Contains(i.Formerly, disk)
}

func (s *Store) createInstance(disks []string) error {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails, see crypto/rand
	identity := s.newIdentity
	if identity == "" || identity == RandomIdentity {
		identity = uuid.NewString()
	} else if empty, err := s.isEmpty(); err != nil {
		return err
	} else if empty {
		return fmt.Errorf("%s is empty, so it is not the disk that has lost the identity %s: mount that disk, or start podnas without --new-identity", s.root.Name(), identity)
	}
	formerly := slices.DeleteFunc(namedDisks(disks), func(disk string) bool { return disk == identity })
	here, err := handleOf(s.root, StateDir)
	if err != nil {
		return err
	}
	s.instance = instance{Identity: identity, HandleKey: key, Formerly: formerly, StateDir: here}
	if s.newIdentity != "" {
		s.log.Warn("disk: its identity was lost, created it: no handle of before is valid", "identity", identity, "formerly", formerly)
	} else {
		s.log.Info("disk: new disk, created its identity", "identity", identity)
	}
	return writeJSON(s.root, s.room, InstanceFile, s.instance)
}

// isEmpty reports whether the disk has neither records nor directories.
func (s *Store) isEmpty() (bool, error) {
	if err := lostIdentity(s.root); err != nil { // it has records
		return false, nil
	}
	entries, err := fs.ReadDir(s.root.FS(), ".")
	return !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() != StateDir && e.Name() != "lost+found" }), err
}

func readInstance(root *os.Root) (instance, error) {
	var i instance
	err := readJSON(root, InstanceFile, &i)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return instance{}, err
	}
	if err == nil && (i.Identity == "" || len(i.HandleKey) != 32) {
		err = errors.New("its identity or its key is missing")
	}
	if err != nil {
		return instance{}, fmt.Errorf("%s is damaged: restore it from a backup of the disk; without it no file handle is valid, and PersistentVolumes belong to another disk. Without a backup, move it away and start podnas: it then says how to go on: %w", InstanceFile, err)
	}
	return i, nil
}

// The kernel opens a file of any directory of a file system by its handle. So if the root was copied
// on its file system (cp -a), handles of the original would open the original's files through the
// copy, which has the original's key. The state directory of a copy has another handle than
// instance.json says, and the original's can still be opened: then the copy signs its handles with a
// key of its own until the original is gone.
//
// Nothing else has another key: the image of a disk has the same handles, on another file system
// there is no original, and a state directory that was put back into its root has its original beside
// it at most.

// bindToStateDir compares the state directory with the one in which instance.json was written, and
// writes the present one if that is gone.
func (s *Store) bindToStateDir() error {
	here, err := handleOf(s.root, StateDir)
	if err != nil {
		return err
	}
	if len(here) == 0 || bytes.Equal(here, s.instance.StateDir) {
		return nil
	}
	if len(s.instance.StateDir) > 0 {
		original, err := s.findOriginal()
		if err != nil { // without the right to open by handle the server can't either
			s.log.Info("disk: it was copied, and whether the original is on the same file system is not known", "err", err)
			return nil
		}
		if original != "" {
			sign := hmac.New(sha256.New, s.instance.HandleKey)
			sign.Write(here)
			s.instance.HandleKey = sign.Sum(nil)
			s.original = original
			f := s.copiedFinding()
			s.log.Warn("disk: "+f.Problem, "fix", f.Fix)
			return nil
		}
	}
	next := s.instance
	next.StateDir = here
	if err := writeJSON(s.root, s.room, InstanceFile, next); err != nil { // serve it even if the disk is full
		s.log.Warn("disk: can't record where its state directory is, the next start tries again", "err", err)
		return nil
	}
	s.instance = next
	return nil
}

// copiedFinding says that the disk is a copy of s.original.
func (s *Store) copiedFinding() Finding {
	return Finding{
		Path:    InstanceFile,
		Problem: "this disk is a copy of " + s.original + " on the same file system, and has its identity: clients of the original can't use this copy, but both manage the same PersistentVolumes",
		Fix:     "if the copy replaces the original, move the original to another file system or remove it, and restart podnas; otherwise never use both with one cluster",
		Notice:  true,
	}
}

// findOriginal returns where the state directory is that instance.json was written in, if it is on
// the same file system, has the same identity, and is not beside the present one.
func (s *Store) findOriginal() (string, error) {
	if len(s.instance.StateDir) < 4 {
		return "", nil
	}
	top, err := s.root.Open(".")
	if err != nil {
		return "", err
	}
	defer top.Close()
	h := unix.NewFileHandle(int32(binary.BigEndian.Uint32(s.instance.StateDir)), s.instance.StateDir[4:])
	fd, err := unix.OpenByHandleAt(int(top.Fd()), h, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
	switch {
	case errors.Is(err, unix.ESTALE), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return "", nil
	case err != nil:
		return "", os.NewSyscallError("open_by_handle_at", err)
	}
	defer unix.Close(fd)
	var above, here unix.Stat_t
	if err := unix.Fstatat(fd, "..", &above, 0); err != nil && !errors.Is(err, unix.ENOENT) { // it is outside of a bind mount
		return "", os.NewSyscallError("fstatat", err)
	}
	if err := unix.Fstat(int(top.Fd()), &here); err != nil {
		return "", os.NewSyscallError("fstat", err)
	}
	if above.Dev == here.Dev && above.Ino == here.Ino {
		return "", nil
	}
	link := fmt.Sprintf("/proc/self/fd/%d", fd)
	original, err := os.OpenRoot(link)
	if err != nil {
		return "", err
	}
	defer original.Close()
	var i instance
	if err := readJSON(original, path.Base(InstanceFile), &i); err != nil || i.Identity != s.instance.Identity {
		return "", nil // another disk, or none
	}
	name, err := os.Readlink(link)
	return filepath.Dir(name), err
}

// handleOf returns the kernel's handle of a directory, its type first, nil if the file system has none.
func handleOf(root *os.Root, name string) ([]byte, error) {
	d, err := openDir(root, name)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	h, _, err := unix.NameToHandleAt(int(d.Fd()), "", unix.AT_EMPTY_PATH)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPERM), errors.Is(err, unix.EOVERFLOW), errors.Is(err, unix.ENOSYS):
		return nil, nil
	case err != nil:
		return nil, os.NewSyscallError("name_to_handle_at", err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(h.Type())), h.Bytes()...), nil
}
