package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"time"
)

// unexportWarning is how long ending an export may take unnoticed: longer than
// any call should.
const unexportWarning = 10 * time.Second

// Delete ends a volume: no client reaches it any more, and its files are
// removed in the background, also after a restart. ErrNotFound where there is
// no such volume.
func (s *Store) Delete(ctx context.Context, name string) error {
	unlock, err := s.names.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	v, err := s.Get(name)
	if err != nil {
		return err
	}

	slow := time.AfterFunc(unexportWarning, func() {
		s.log.Warn("volume: can't be deleted yet, calls of clients are under way in it", "volume", name)
	})
	s.exports.Unexport(v)
	slow.Stop()
	trashed := path.Join(trashDir, v.trashName()+".json")
	// A call that failed halfway may have moved the record already.
	if err := s.root.Rename(recordFile(name), trashed); err != nil && !errors.Is(err, os.ErrNotExist) {
		return errors.Join(fmt.Errorf("delete volume %s: %w", name, err), s.exports.Export(v))
	}
	if err := errors.Join(syncDir(s.root, trashDir), syncDir(s.root, volumesDir)); err != nil {
		return fmt.Errorf("delete volume %s: %w", name, err)
	}
	if err := s.moveToTrash(&v); err != nil {
		return err
	}

	s.mu.Lock()
	delete(s.records, name)
	s.mu.Unlock()
	s.enqueueTrash(record{State: ready, Volume: v})
	s.log.Info("volume: deleted, its files are removed in the background", "volume", name)
	return nil
}

// moveToTrash moves the directory of a volume whose record is in the trash. It
// may have been moved before, or be gone.
func (s *Store) moveToTrash(v *Volume) error {
	to := path.Join(trashDir, v.trashName())
	err := s.root.Rename(v.Path, to)
	if errors.Is(err, os.ErrPermission) {
		// Without CAP_DAC_OVERRIDE a directory must be writable to be moved,
		// and a client may have taken that away.
		if info, _ := s.root.Lstat(v.Path); info != nil && info.IsDir() {
			err = s.root.Chmod(v.Path, 0o700)
		}
		if err == nil {
			err = s.root.Rename(v.Path, to)
		}
	}
	if err == nil {
		err = errors.Join(syncDir(s.root, trashDir), syncDir(s.root, "."))
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("move volume %s to the trash: %w", v.Name, err)
	}
	return nil
}
