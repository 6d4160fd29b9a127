package nfsv41

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
)

// The pseudo file system (RFC 8881 section 7.3) joins the volumes to one tree: the parts
// of their paths are directories that nobody can change. A client sees those that lead to
// a volume that it may mount.

// pseudoVolume is the number of the pseudo file system in handles. No volume has it.
const pseudoVolume = 0

// pseudo is the tree of the volumes of a table, for all clients. It is made anew when the table has changed.
type pseudo struct {
	table *exports.Table
	last  atomic.Pointer[tree]
}

// tree is all pseudo directories. It never changes.
type tree struct {
	volumes []*exports.Volume // that it was made of
	root    *node             // which is there even if no volume is
	byID    map[disk.FileID]*node
}

// node is a pseudo directory, by its path: "/", "/a", "/a/b".
type node struct {
	path    string
	id      disk.FileID // in its handle
	fileID  uint64
	change  uint64      // of what any client sees in it, and below
	up      *node       // nil: it is the root
	entries []nodeEntry // by cookie
}

// nodeEntry is a name in a pseudo directory: a volume's, or that of another pseudo directory.
type nodeEntry struct {
	name   string
	cookie uint64 // of READDIR: the number of its path, which stays when others come and go
	volume *exports.Volume
	node   *node
}

// pathID is the number of a file with a path. It is a cookie, too.
func pathID(path string) uint64 {
	sum := sha256.Sum256([]byte(path))
	return pathIDOf(&sum)
}

func pathIDOf(sum *[sha256.Size]byte) uint64 {
	return max(cookiesFrom, binary.BigEndian.Uint64(sum[:])>>1)
}

// idOf is what a handle has of a path.
func idOf(path string) disk.FileID {
	sum := sha256.Sum256([]byte(path))
	return disk.NewFileID(sum[:16])
}

func newNode(path string, up *node) *node {
	sum := sha256.Sum256([]byte(path))
	return &node{path: path, id: disk.NewFileID(sum[:16]), fileID: pathIDOf(&sum), up: up}
}

// tree returns the tree of the volumes that there are now.
func (p *pseudo) tree() *tree {
	volumes := p.table.Volumes()
	t := p.last.Load()
	if t == nil || !exports.IsSame(t.volumes, volumes) {
		t = newTree(volumes) // others may do so at this moment, and get the same
		p.last.Store(t)
	}
	return t
}

// newTree makes the tree of volumes, which are by path.
func newTree(volumes []*exports.Volume) *tree {
	t := &tree{volumes: volumes, root: newNode("/", nil)}
	t.byID = map[disk.FileID]*node{t.root.id: t.root}
	byPath := map[string]*node{}
	for _, v := range volumes {
		at := t.root
		parts := strings.Split(strings.Trim(v.Path, "/"), "/")
		for _, name := range parts[:len(parts)-1] {
			path := at.child(name)
			next := byPath[path]
			if next == nil {
				next = newNode(path, at)
				byPath[path], t.byID[next.id] = next, next
				at.entries = append(at.entries, nodeEntry{name: name, cookie: next.fileID, node: next})
			}
			at = next
		}
		name := parts[len(parts)-1]
		at.entries = append(at.entries, nodeEntry{name: name, cookie: pathID(at.child(name)), volume: v})
	}
	t.root.complete()
	return t
}

// complete brings the entries into their order, and has change move with what clients see: the volumes, and who may mount them.
func (n *node) complete() {
	slices.SortFunc(n.entries, compareEntries)
	h := fnv.New64a()
	for _, e := range n.entries {
		_, _ = io.WriteString(h, e.name)
		switch v := e.volume; {
		case v == nil:
			e.node.complete()
			_, _ = h.Write(binary.BigEndian.AppendUint64(nil, e.node.change))
		case v.Refused != nil, v.Options.PrivilegedPorts, len(v.Options.Clients) > 0:
			fmt.Fprint(h, "/", v.Refused != nil, v.Options.PrivilegedPorts, v.Options.Clients)
		default:
			_, _ = io.WriteString(h, "/")
		}
	}
	n.change = h.Sum64()
}

// compareEntries has entries by their cookies, and a volume before a directory of the same path, which it hides.
func compareEntries(a, b nodeEntry) int {
	switch {
	case a.cookie != b.cookie:
		return cmp.Compare(a.cookie, b.cookie)
	case a.volume != nil && b.volume == nil:
		return -1
	case a.volume == nil && b.volume != nil:
		return 1
	}
	return 0
}

func (n *node) child(name string) string { return strings.TrimSuffix(n.path, "/") + "/" + name }

// isSeen reports whether a client sees the directory.
func (n *node) isSeen(client netip.AddrPort) bool {
	return n.up == nil || slices.ContainsFunc(n.entries, func(e nodeEntry) bool { return e.isSeen(client) })
}

func (e *nodeEntry) isSeen(client netip.AddrPort) bool {
	if v := e.volume; v != nil {
		return v.MayUse(client)
	}
	return e.node.isSeen(client)
}

// after returns the entries that follow a cookie.
func (n *node) after(cookie uint64) []nodeEntry {
	i, _ := slices.BinarySearchFunc(n.entries, cookie+1, func(e nodeEntry, cookie uint64) int { return cmp.Compare(e.cookie, cookie) })
	return n.entries[i:]
}

// lookup finds what a client sees by a name; nil if there is nothing.
func (n *node) lookup(name string, client netip.AddrPort) *nodeEntry {
	cookie := pathID(n.child(name))
	entries := n.after(cookie - 1)
	for i := range entries {
		e := &entries[i]
		if e.cookie != cookie {
			break
		}
		if e.name == name && e.isSeen(client) {
			return e
		}
		if v := e.volume; v != nil && e.name == name && v.Allows(client.Addr()) {
			v.AllowsPort(client) // which logs why not
		}
	}
	return nil
}

// find finds the directory of a handle that a client sees; nil if there is none.
func (t *tree) find(id disk.FileID, client netip.AddrPort) *node {
	if n := t.byID[id]; n != nil && n.isSeen(client) {
		return n
	}
	return nil
}

// parent is the path above a path.
func parent(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}
