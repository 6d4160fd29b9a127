package nfs3

import (
	"encoding/binary"
	"errors"
	"syscall"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
)

// make answers a procedure that puts something new into a directory. f makes it
// and gives it the attributes that the caller wants.
func (s *service) make(c *oncrpc.Call, where nfs3.DirOpArgs, f func(dir *export.File, name string, id *export.Identity) (*export.File, error)) oncrpc.Answer {
	dir, err := s.openDir(c, where.Dir)
	if err != nil {
		return reply(c, &nfs3.CreateRes{Status: statusOf(err)})
	}
	return s.work(c, dir.Volume, func(t *task) result {
		res := &nfs3.CreateRes{}
		names, alone := export.LockNames(dir, dir)
		defer names.Unlock()
		res.DirWcc.Before = preOpOf(lockedDir{dir}, alone)
		err := checkMade(where.Name)
		var made *export.File
		if err == nil {
			made, err = f(dir, string(where.Name), &t.id)
		}
		if err == nil {
			t.files[1] = made
			res.Object, res.Attr = made.Handle(), postOpOf(dir.Volume, madeFile{made})
			if !dir.Volume.Options.Async {
				t.sync(&res.Status, newName{made, dir})
			}
		}
		res.Status = statusOf(err)
		res.DirWcc.After = postOpOf(dir.Volume, dir)
		return res
	}, dir)
}

// newName is what was just made, and the directory that it was made in.
type newName struct{ made, dir *export.File }

func (n newName) SyncHere() (bool, error) { return n.made.SyncMadeHere(n.dir) }

func (n newName) SyncThen(w export.Waiter) { n.made.SyncMadeThen(n.dir, w) }

// checkMade tells what is wrong with the name of something new. "." and ".." are
// there already.
func checkMade(name []byte) error {
	if string(name) == "." || string(name) == ".." {
		return syscall.EEXIST
	}
	return checkName(name)
}

// create: RFC 1813 section 3.3.8.
func (s *service) create(c *oncrpc.Call) oncrpc.Answer {
	var args nfs3.CreateArgs
	if !decode(c, &args) {
		return badArgs(c)
	}
	return s.make(c, args.Where, func(dir *export.File, name string, _ *export.Identity) (*export.File, error) {
		if args.Attr.Size.Set && args.Attr.Size.Value > maxOffset {
			return nil, syscall.EFBIG // before there is a file
		}
		if args.Mode == nfs3.Exclusive {
			return createExclusive(dir, name, args.Verf)
		}
		made, err := dir.Create(name, args.Attr.Mode.Value&0o7777)
		if args.Mode == nfs3.Unchecked && errors.Is(err, syscall.EEXIST) {
			return openExisting(dir, name, &args.Attr)
		}
		if err != nil {
			return nil, err
		}
		return finish(made, func() error {
			if args.Attr.Size.Set && args.Attr.Size.Value != 0 {
				if err := made.Truncate(args.Attr.Size.Value); err != nil {
					return err
				}
			}
			return errors.Join(setOwner(made, &args.Attr), setTimes(made, &args.Attr))
		})
	})
}

// openExisting is CREATE UNCHECKED of a name that is there. Of the attributes
// only the size is meant for a file that exists.
func openExisting(dir *export.File, name string, attr *nfs3.Sattr) (*export.File, error) {
	f, err := dir.Lookup([]byte(name))
	if err != nil {
		return nil, err
	}
	return finish(f, func() error {
		switch {
		case !f.Attr.IsRegular():
			return syscall.EEXIST
		case attr.Size.Set:
			return f.Truncate(attr.Size.Value)
		}
		return nil
	})
}

// createExclusive keeps the verifier in the new file's times, where a repeated
// call finds it. The client sets the attributes next.
func createExclusive(dir *export.File, name string, verf [nfs3.CreateVerfSize]byte) (*export.File, error) {
	// As signed numbers and without nanoseconds: every disk keeps those.
	atime := time.Unix(int64(int32(binary.BigEndian.Uint32(verf[:4]))), 0)
	mtime := time.Unix(int64(int32(binary.BigEndian.Uint32(verf[4:]))), 0)
	made, err := dir.Create(name, 0)
	if errors.Is(err, syscall.EEXIST) {
		found, lookupErr := dir.Lookup([]byte(name))
		if lookupErr != nil {
			return nil, lookupErr
		}
		if a := &found.Attr; a.IsRegular() && a.Atime.Equal(atime) && a.Mtime.Equal(mtime) {
			return found, nil // the call's repetition
		}
		found.Close()
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	return finish(made, func() error {
		return made.Chtimes(export.SetTime{Set: true, Time: atime}, export.SetTime{Set: true, Time: mtime})
	})
}

// finish sets what could not be set at creation, and closes the file if that
// goes wrong.
func finish(f *export.File, set func() error) (*export.File, error) {
	if err := set(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// mkdir: section 3.3.9.
func (s *service) mkdir(c *oncrpc.Call) oncrpc.Answer {
	var args nfs3.MkdirArgs
	if !decode(c, &args) {
		return badArgs(c)
	}
	return s.make(c, args.Where, func(dir *export.File, name string, _ *export.Identity) (*export.File, error) {
		mode := args.Attr.Mode.Value & 0o7777
		made, err := dir.Mkdir(name, mode&(nfs3.ModePerm|nfs3.ModeSticky))
		if err != nil {
			return nil, err
		}
		return finish(made, func() error {
			// mkdir(2) takes no setuid and setgid, but the directory may have
			// inherited setgid.
			if special := mode & (nfs3.ModeSetUID | nfs3.ModeSetGID); special != 0 {
				if err := made.Chmod(mode | made.Attr.Mode&nfs3.ModeSetGID); err != nil {
					return err
				}
			}
			return errors.Join(setOwner(made, &args.Attr), setTimes(made, &args.Attr))
		})
	})
}

// symlink: section 3.3.10. A symbolic link has no mode.
func (s *service) symlink(c *oncrpc.Call) oncrpc.Answer {
	var args nfs3.SymlinkArgs
	if !decode(c, &args) {
		return badArgs(c)
	}
	return s.make(c, args.Where, func(dir *export.File, name string, _ *export.Identity) (*export.File, error) {
		made, err := dir.Symlink(string(args.Path), name)
		if err != nil {
			return nil, err
		}
		return finish(made, func() error {
			return errors.Join(setOwner(made, &args.Attr), setTimes(made, &args.Attr))
		})
	})
}

// mknod: section 3.3.11. Devices are for root; the kernel would let it make one
// only with CAP_MKNOD.
func (s *service) mknod(c *oncrpc.Call) oncrpc.Answer {
	var args nfs3.MknodArgs
	if !decode(c, &args) {
		return badArgs(c)
	}
	return s.make(c, args.Where, func(dir *export.File, name string, id *export.Identity) (*export.File, error) {
		types := map[nfs3.FType]uint32{nfs3.TypeFIFO: export.TypeFIFO, nfs3.TypeSock: export.TypeSocket, nfs3.TypeChr: export.TypeChar, nfs3.TypeBlk: export.TypeBlock}
		fileType, ok := types[args.Type]
		if !ok {
			return nil, errBadType
		}
		if isDevice := args.Type == nfs3.TypeChr || args.Type == nfs3.TypeBlk; isDevice && id.UID != 0 {
			return nil, syscall.EPERM
		}
		made, err := dir.Mknod(name, fileType, args.Attr.Mode.Value&0o7777, args.Spec.Major, args.Spec.Minor)
		if err != nil {
			return nil, err
		}
		return finish(made, func() error {
			return errors.Join(setOwner(made, &args.Attr), setTimes(made, &args.Attr))
		})
	})
}
