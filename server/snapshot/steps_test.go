package snapshot_test

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/inode"
)

// The calls of a model.

func (m *model) create(dir *node, _ string, _ *node) error {
	name := m.newName()
	id, err := m.v.create(dir.id, name)
	dir.add(name, &node{id: id, facts: facts{mode: 0o644}})
	return err
}

func (m *model) mkdir(dir *node, _ string, _ *node) error {
	name := m.newName()
	id, err := m.v.mkdir(dir.id, name)
	dir.add(name, &node{id: id, facts: facts{mode: os.ModeDir | 0o755}, names: map[string]*node{}})
	return err
}

func (m *model) symlink(dir *node, _ string, _ *node) error {
	name, target := m.newName(), fmt.Sprint("to ", m.r.IntN(1000))
	made := &node{facts: facts{mode: os.ModeSymlink | 0o777, content: target}}
	err := m.v.changeNames(dir.id, dir.id, func(in, _ *inode.File) error {
		f, err := in.Symlink(actas.AsProcess(), target, name)
		if err == nil {
			made.id = f.ID
			f.Close()
		}
		return err
	})
	dir.add(name, made)
	return err
}

func (m *model) write(_ *node, _ string, n *node) error {
	content := fmt.Sprintf("at %d", m.r.IntN(1000))
	n.content += content
	n.changed()
	return m.v.write(n.id, content, int64(len(n.content)-len(content)))
}

func (m *model) truncate(_ *node, _ string, n *node) error {
	n.content = n.content[:m.r.IntN(len(n.content)+1)]
	n.changed()
	return m.v.withWrite(n.id, func(f *inode.File) error { return f.Truncate(actas.AsProcess(), uint64(len(n.content))) })
}

func (m *model) newMode(n *node) os.FileMode {
	return n.mode&^os.ModePerm | os.FileMode(0o600+m.r.IntN(0o100))
}

func (m *model) chmod(_ *node, _ string, n *node) error {
	n.mode = m.newMode(n)
	return m.v.withAttr(n.id, func(f *inode.File) error { return f.Chmod(actas.AsProcess(), uint32(n.mode.Perm())) })
}

func (m *model) chown(_ *node, _ string, n *node) error {
	n.uid, n.gid = m.r.IntN(10), m.r.IntN(10)
	return m.v.withAttr(n.id, func(f *inode.File) error { return f.Chown(actas.AsProcess(), n.uid, n.gid) })
}

func (m *model) chtimes(_ *node, _ string, n *node) error {
	t := m.longAgo()
	n.mtime = t.Unix()
	return m.v.withAttr(n.id, func(f *inode.File) error {
		return f.Chtimes(actas.AsProcess(), inode.SetTime{}, inode.SetTime{Set: true, Time: t})
	})
}

// setattr sets several attributes by one call.
func (m *model) setattr(_ *node, _ string, n *node) error {
	n.mode, n.uid, n.gid = m.newMode(n), m.r.IntN(10), m.r.IntN(10)
	n.content = n.content[:m.r.IntN(len(n.content)+1)]
	t := m.longAgo()
	n.mtime = t.Unix()
	as := actas.AsProcess()
	return m.v.withWrite(n.id, func(data *inode.File) error {
		return m.v.withAttr(n.id, func(f *inode.File) error {
			var call inode.Together
			return call.Do(f, data, func() error {
				return errors.Join(f.Chown(as, n.uid, n.gid), f.Chmod(as, uint32(n.mode.Perm())), data.Truncate(as, uint64(len(n.content))),
					f.Chtimes(as, inode.SetTime{}, inode.SetTime{Set: true, Time: t}))
			})
		})
	})
}

func (m *model) setxattr(_ *node, _ string, n *node) error {
	had := n.note != ""
	n.note = ""
	if !had || m.r.IntN(2) == 0 {
		n.note = strings.Repeat("x", 1+m.r.IntN(300))
	}
	return m.v.withAttr(n.id, func(f *inode.File) error {
		if n.note == "" {
			return f.RemoveXattr(actas.AsProcess(), []byte(noteName))
		}
		return f.SetXattr(actas.AsProcess(), []byte(noteName), []byte(n.note), 0)
	})
}

func (m *model) setacl(_ *node, _ string, n *node) error {
	var acl []inode.ACLEntry
	if n.acl != "" && m.r.IntN(2) == 0 {
		n.acl = "" // the mode stays
	} else {
		mask, user, group := uint16(m.r.IntN(8)), uint16(m.r.IntN(8)), uint16(m.r.IntN(8))
		acl = []inode.ACLEntry{
			{Tag: inode.ACLUserObj, Perm: 7}, {Tag: inode.ACLUser, Perm: user, ID: 1234}, {Tag: inode.ACLGroupObj, Perm: group}, {Tag: inode.ACLMask, Perm: mask}, {Tag: inode.ACLOther},
		}
		n.acl = fmt.Sprintf("%d %d", user, group)
		n.mode = n.mode&^os.ModePerm | os.FileMode(0o700|mask<<3)
	}
	return m.v.withAttr(n.id, func(f *inode.File) error {
		if acl != nil && !inode.SortACL(acl) {
			return errors.New("that is no ACL")
		}
		return f.SetACL(actas.AsProcess(), inode.AccessACL, acl)
	})
}

func (m *model) allocate(_ *node, _ string, n *node) error {
	offset, length := m.r.IntN(len(n.content)+100), 1+m.r.IntN(300)
	n.content += strings.Repeat("\x00", max(offset+length-len(n.content), 0))
	n.changed()
	return m.v.withWrite(n.id, func(f *inode.File) error { return f.Allocate(actas.AsProcess(), int64(offset), int64(length)) })
}

func (m *model) deallocate(_ *node, _ string, n *node) error {
	offset := m.r.IntN(len(n.content))
	length := 1 + m.r.IntN(len(n.content)-offset)
	n.content = n.content[:offset] + strings.Repeat("\x00", length) + n.content[offset+length:]
	n.changed()
	return m.v.withWrite(n.id, func(f *inode.File) error { return f.Deallocate(actas.AsProcess(), int64(offset), int64(length)) })
}

// clone shares the blocks of a whole file. A longer one can't be replaced by it.
func (m *model) clone(_ *node, _ string, n *node) error {
	from := m.pickFile(n)
	if from == nil || from.content == "" || len(from.content) < len(n.content) {
		return nil
	}
	n.content = from.content
	n.changed()
	return m.withBoth(n, from, func(f, from *inode.File) error { return f.CloneFrom(actas.AsProcess(), from, 0, 0, 0) })
}

func (m *model) copy(_ *node, _ string, n *node) error {
	from := m.pickFile(n)
	if from == nil || from.content == "" {
		return nil
	}
	size := len(from.content)
	n.content = from.content + n.content[min(size, len(n.content)):]
	n.changed()
	return m.withBoth(n, from, func(f, from *inode.File) error {
		_, err := f.CopyFrom(actas.AsProcess(), from, 0, 0, int64(size))
		return err
	})
}

func (m *model) withBoth(n, from *node, do func(f, from *inode.File) error) error {
	return m.v.withWrite(n.id, func(f *inode.File) error {
		return m.v.withWrite(from.id, func(from *inode.File) error { return do(f, from) })
	})
}

// rename renames something, half of the times over what is there.
func (m *model) rename(dir *node, name string, n *node) error {
	to, newName := m.pick()
	old := to.names[newName]
	if m.r.IntN(2) == 0 || old == nil {
		newName, old = m.newName(), nil
	}
	if n.has(to) || old == n || old != nil && (len(old.names) > 0 || (old.names == nil) != (n.names == nil) || old.has(dir)) {
		return nil // rename(2) would refuse it, or do nothing
	}
	err := m.v.rename(dir.id, name, to.id, newName)
	if old != nil {
		m.drop(to, newName)
	}
	delete(dir.names, name)
	dir.changed()
	n.links--
	to.add(newName, n)
	return err
}

func (m *model) link(_ *node, _ string, n *node) error {
	to, _ := m.pick()
	newName := m.newName()
	err := m.v.changeNames(to.id, to.id, func(to, _ *inode.File) error {
		return m.v.withAttr(n.id, func(f *inode.File) error { return f.Link(actas.AsProcess(), to, newName) })
	})
	to.add(newName, n)
	return err
}

func (m *model) remove(dir *node, name string, n *node) error {
	err := m.v.changeNames(dir.id, dir.id, func(in, _ *inode.File) error {
		if n.names != nil {
			return in.Rmdir(actas.AsProcess(), name)
		}
		return in.Remove(actas.AsProcess(), name)
	})
	m.drop(dir, name)
	return err
}

// open has a client have a file open, by which it stays when it is removed.
func (m *model) open(_ *node, _ string, n *node) error {
	return m.v.withWrite(n.id, func(f *inode.File) error {
		n.held = f.Hold()
		return nil
	})
}

// writeOrphan writes to a file that was removed, and perhaps closes it. No snapshot has it.
func (m *model) writeOrphan(*node, string, *node) error {
	if len(m.orphans) == 0 {
		return nil
	}
	n := m.orphans[0]
	f, err := n.held.File()
	if err != nil {
		return err
	}
	defer f.Close()
	if _, _, err := f.WriteAt([]byte("of nobody"), 0); err != nil {
		return err
	}
	if m.r.IntN(2) == 0 {
		n.held.Close()
		m.orphans = m.orphans[1:]
	}
	return nil
}
