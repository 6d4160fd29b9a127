package snapshot_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/inode"
)

// facts are what a tree has of a file, and what the model has.
type facts struct {
	mode    os.FileMode
	uid     int
	gid     int
	mtime   int64  // in seconds, if a call has set it; 0: it is that of the latest change
	note    string // an extended attribute
	acl     string // what the mode does not say; empty: it has none
	content string // of a symbolic link, its target
}

// setMost is later than all times that a model sets.
const setMost = 1_500_000_000

// noteName is the name of the extended attribute.
const noteName = "note"

// factsAt reads the facts of a file.
func factsAt(at string, info os.FileInfo) (f facts, err error) {
	st := info.Sys().(*syscall.Stat_t)
	f = facts{mode: info.Mode(), uid: int(st.Uid), gid: int(st.Gid), mtime: st.Mtim.Sec}
	if f.mtime > setMost {
		f.mtime = 0
	}
	if f.mode&os.ModeSymlink != 0 {
		f.content, err = os.Readlink(at)
		return f, err
	}
	b := make([]byte, 1000)
	if n, err := unix.Lgetxattr(at, disk.XattrUser+noteName, b); err == nil {
		f.note = string(b[:n])
	}
	if n, err := unix.Lgetxattr(at, string(inode.AccessACL), b); err == nil {
		f.acl = aclText(b[4:n])
	}
	if f.mode.IsRegular() {
		content, err := os.ReadFile(at)
		f.content = string(content)
		return f, err
	}
	return f, nil
}

// aclText says what the mode does not say of an ACL as it is on the disk: the rights of a user by name, and of the group.
func aclText(entries []byte) string {
	perms := map[uint16]uint16{}
	for ; len(entries) >= 8; entries = entries[8:] {
		perms[binary.LittleEndian.Uint16(entries)] = binary.LittleEndian.Uint16(entries[2:])
	}
	return fmt.Sprintf("%d %d", perms[inode.ACLUser], perms[inode.ACLGroupObj])
}

// line is the line of a name in a description. links is how many names there are, and same the first of them, if this is another.
func (f *facts) line(name string, links int, same string) string {
	line := fmt.Sprintf("%s %v %d:%d %d note %q acl %q", name, f.mode, f.uid, f.gid, f.mtime, f.note, f.acl)
	if f.mode.IsDir() {
		return line
	}
	line += fmt.Sprintf(" %d links %q", links, f.content)
	if same != "" {
		line += " = " + same
	}
	return line
}

// describe says what is in a tree: a line for each name, with its facts, and which other name is the same file.
func describe(root string) ([]string, error) {
	var lines []string
	first := map[uint64]string{}
	names := map[uint64]int{} // in this tree: a file may have others in other snapshots
	count := func(_ string, info os.FileInfo, err error) error {
		if err == nil {
			names[info.Sys().(*syscall.Stat_t).Ino]++
		}
		return err
	}
	if err := filepath.Walk(root, count); err != nil {
		return nil, err
	}
	err := filepath.Walk(root, func(at string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		f, err := factsAt(at, info)
		if err != nil {
			return err
		}
		name, number := strings.TrimPrefix(at, root), info.Sys().(*syscall.Stat_t).Ino
		lines = append(lines, f.line(name, names[number], first[number]))
		if first[number] == "" {
			first[number] = name
		}
		return nil
	})
	return lines, err
}

// node is a file of the model.
type node struct {
	facts

	id    disk.FileID
	links int
	names map[string]*node // of a directory
	held  *inode.Held      // by a client; nil: it has it not open
}

// model is what a volume should have.
type model struct {
	v    *volume
	root *node
	r    *rand.Rand
	made int
	did  map[string]int // how often each kind of call was made
	// orphans have no name any more, but a client has them open.
	orphans []*node

	prefix string // of the names that it makes
	fixed  bool   // the root, and what is in it, do not change
	most   int    // names that there are before it makes no more
}

func newModel(v *volume, seed, which uint64) *model {
	root := &node{id: *v.Files.RootID(), facts: facts{mode: os.ModeDir | 0o755}, names: map[string]*node{}}
	return &model{v: v, root: root, r: rand.New(rand.NewPCG(seed, which)), did: map[string]int{}, prefix: "n", most: 500}
}

// end closes what clients have open.
func (m *model) end() {
	m.root.each("", func(_ string, n *node) {
		if n.held != nil {
			n.held.Close()
			n.held = nil // it may have several names
		}
	})
	for _, n := range m.orphans {
		n.held.Close()
	}
	m.orphans = nil
}

// pick returns a directory, and one of its names, which may be empty.
func (m *model) pick() (dir *node, name string) {
	var dirs []*node
	m.root.each("", func(_ string, n *node) {
		if n.names != nil && (n != m.root || !m.fixed) {
			dirs = append(dirs, n)
		}
	})
	dir = dirs[m.r.IntN(len(dirs))]
	if names := slices.Sorted(maps.Keys(dir.names)); len(names) > 0 {
		name = names[m.r.IntN(len(names))]
	}
	return dir, name
}

// pickFile returns a regular file that is not n, nil if there is none.
func (m *model) pickFile(n *node) *node {
	var files []*node
	m.root.each("", func(_ string, other *node) {
		if other.mode.IsRegular() && other != n {
			files = append(files, other)
		}
	})
	if len(files) == 0 {
		return nil
	}
	return files[m.r.IntN(len(files))]
}

// each calls do for a node and all below it, in the order of filepath.Walk.
func (n *node) each(at string, do func(string, *node)) {
	do(at, n)
	for _, name := range slices.Sorted(maps.Keys(n.names)) {
		n.names[name].each(at+"/"+name, do)
	}
}

func (n *node) has(other *node) (is bool) {
	n.each("", func(_ string, x *node) { is = is || x == other })
	return is
}

// changed is that the data of a file was changed, or the names in a directory.
func (n *node) changed() { n.mtime = 0 }

func (m *model) describe() string {
	var lines []string
	first := map[*node]string{}
	m.root.each("", func(at string, n *node) {
		lines = append(lines, n.line(at, n.links, first[n]))
		if first[n] == "" {
			first[n] = at
		}
	})
	return strings.Join(lines, "\n")
}

func (m *model) newName() string {
	m.made++
	return fmt.Sprintf("%s%d", m.prefix, m.made)
}

// add adds a new name to a directory of the model.
func (n *node) add(name string, file *node) {
	file.links++
	n.names[name] = file
	n.changed()
}

// drop removes a name from a directory of the model.
func (m *model) drop(dir *node, name string) {
	n := dir.names[name]
	n.links--
	delete(dir.names, name)
	dir.changed()
	if n.held != nil && n.links == 0 {
		m.orphans = append(m.orphans, n)
	}
}

// step is one call that changes something, on the disk and in the model.
func (m *model) step() error {
	dir, name := m.pick()
	n := dir.names[name]
	kind := m.draw(n)
	m.did[kind.name]++
	if err := kind.do(m, dir, name, n); err != nil {
		return fmt.Errorf("%s of %q: %w", kind.name, name, err)
	}
	return nil
}

// undone are the kinds of calls that were not drawn yet.
func (m *model) undone() (names []string) {
	for _, k := range kindsOfSteps() {
		if m.did[k.name] == 0 {
			names = append(names, k.name)
		}
	}
	return names
}

// kindOfStep is a kind of calls.
type kindOfStep struct {
	name   string
	weight int
	makes  bool               // a name
	of     func(n *node) bool // nil: what has the name, if anything, does not matter
	do     func(m *model, dir *node, name string, n *node) error
}

// draw returns what is done to a name, or in its directory. n is nil if the directory is empty.
func (m *model) draw(n *node) kindOfStep {
	all := kindsOfSteps()
	names := 0
	m.root.each("", func(string, *node) { names++ })
	if names >= m.most {
		all = slices.DeleteFunc(all, func(k kindOfStep) bool { return k.makes })
	}
	sum := 0
	for _, k := range all {
		sum += k.weight
	}
	for {
		at := m.r.IntN(sum)
		for _, k := range all {
			if at -= k.weight; at < 0 {
				if k.of == nil || n != nil && k.of(n) {
					return k
				}
				break
			}
		}
	}
}

func isFile(n *node) bool     { return n.mode.IsRegular() }
func isNoDir(n *node) bool    { return n.names == nil }
func isNoLink(n *node) bool   { return n.mode&os.ModeSymlink == 0 }
func isAny(*node) bool        { return true }
func isGone(n *node) bool     { return len(n.names) == 0 }
func isNotHeld(n *node) bool  { return isFile(n) && n.held == nil }
func hasContent(n *node) bool { return isFile(n) && len(n.content) > 0 }

func kindsOfSteps() []kindOfStep {
	return []kindOfStep{
		{"CREATE", 20, true, nil, (*model).create},
		{"MKDIR", 6, true, nil, (*model).mkdir},
		{"SYMLINK", 3, true, nil, (*model).symlink},
		{"WRITE", 15, false, isFile, (*model).write},
		{"SETATTR of the size", 5, false, isFile, (*model).truncate},
		{"SETATTR of the mode", 5, false, isNoLink, (*model).chmod},
		{"SETATTR of the owner", 4, false, isAny, (*model).chown},
		{"SETATTR of the mtime", 4, false, isAny, (*model).chtimes},
		{"SETATTR of all", 5, false, isFile, (*model).setattr},
		{"SETXATTR", 4, false, isNoLink, (*model).setxattr},
		{"SETACL", 4, false, isNoLink, (*model).setacl},
		{"ALLOCATE", 3, false, isFile, (*model).allocate},
		{"DEALLOCATE", 3, false, hasContent, (*model).deallocate},
		{"CLONE", 4, false, isFile, (*model).clone},
		{"COPY", 3, false, isFile, (*model).copy},
		{"RENAME", 25, false, isAny, (*model).rename},
		{"LINK", 6, true, isNoDir, (*model).link},
		{"REMOVE", 14, false, isGone, (*model).remove},
		{"OPEN", 5, false, isNotHeld, (*model).open},
		{"WRITE of a removed file", 5, false, nil, (*model).writeOrphan},
	}
}

// longAgo is a time that a call may set.
func (m *model) longAgo() time.Time { return time.Unix(1_000_000_000+m.r.Int64N(100_000), 0) }
