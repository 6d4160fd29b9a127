package nfsv41

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/locate"
)

// The pseudo file system (RFC 8881 section 7.3) joins the volumes to one tree: the parts
// of their paths are directories that nobody can change. A client sees those that lead to
// a volume that it may mount.

// pseudoVolume is the number of the pseudo file system in handles. No volume has it.
const pseudoVolume = 0

// node is a pseudo directory, by its path: "/", "/a", "/a/b".
type node struct {
	path    string
	entries []nodeEntry // by name
}

// nodeEntry is a name in a pseudo directory.
type nodeEntry struct {
	name   string
	volume *exports.Volume // nil: a pseudo directory
}

// fileID is the directory's number.
func (n *node) fileID() uint64 { return pathID(n.path) }

func pathID(path string) uint64 {
	sum := sha256.Sum256([]byte(path))
	return max(2, binary.BigEndian.Uint64(sum[:])>>1) // never 0
}

// idOf is what a handle has of a path.
func idOf(path string) disk.FileID {
	sum := sha256.Sum256([]byte(path))
	return disk.NewFileID(sum[:16])
}

// change moves when the entries do.
func (n *node) change() uint64 {
	h := sha256.New()
	for _, e := range n.entries {
		h.Write([]byte(e.name + "/"))
	}
	return binary.BigEndian.Uint64(h.Sum(nil))
}

func (n *node) child(name string) string { return strings.TrimSuffix(n.path, "/") + "/" + name }

func (n *node) lookup(name string) (nodeEntry, bool) {
	i := slices.IndexFunc(n.entries, func(e nodeEntry) bool { return e.name == name })
	if i < 0 {
		return nodeEntry{}, false
	}
	return n.entries[i], true
}

// pseudo finds pseudo directories for a client.
type pseudo struct {
	table  *exports.Table
	key    *locate.Key
	client netip.AddrPort
}

func (p pseudo) handle(path string) []byte { return p.key.Handle(pseudoVolume, idOf(path)) }

// nodes are all directories by their paths. The root is there even if no volume is.
func (p pseudo) nodes() map[string]*node {
	nodes := map[string]*node{"/": {path: "/"}}
	for _, v := range p.table.Volumes() { // by path, so that entries are by name
		if !v.Allows(p.client.Addr()) || !v.AllowsPort(p.client) {
			continue
		}
		at := nodes["/"]
		parts := strings.Split(strings.Trim(v.Path, "/"), "/")
		for i, name := range parts {
			if i == len(parts)-1 {
				at.entries = append(at.entries, nodeEntry{name, v})
				break
			}
			path := at.child(name)
			next := nodes[path]
			if next == nil {
				next = &node{path: path}
				nodes[path] = next
				at.entries = append(at.entries, nodeEntry{name: name})
			}
			at = next
		}
	}
	return nodes
}

// byPath is nil if there is none.
func (p pseudo) byPath(path string) *node { return p.nodes()[path] }

// byID is nil if there is none.
func (p pseudo) byID(id disk.FileID) *node {
	for path, n := range p.nodes() {
		if idOf(path) == id {
			return n
		}
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
