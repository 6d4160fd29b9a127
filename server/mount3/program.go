// Package mount3 is the native engine's MOUNT version 3 (RFC 1813 appendix I), which gives a
// client the file handle of a volume's root.
package mount3

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/stats"
)

const (
	// mountsMax bounds DUMP's list. It is for people: nothing depends on it.
	mountsMax = 1000

	// logBurst is how many lines about mounts, and about refused ones, are logged at once, and logPeriod how long until one
	// more is: anybody may call. All nodes of a cluster mount at once when podnas comes back.
	logBurst  = 1000
	logPeriod = time.Second
)

// Exports are the volumes that clients can mount. Its methods may be called concurrently, and
// must not block: they run on the goroutine that reads the connection.
type Exports interface {
	// Root returns the handle of the root of the volume at a path, or why this client may not
	// mount it.
	Root(path string, client netip.AddrPort) (fh []byte, status mount3.Status)
	// List returns the paths of the volumes, sorted.
	List() []string
}

// service answers MOUNT, RFC 1813 section 5.
type service struct {
	exports Exports
	mounted *stats.Lines
	refused *stats.Lines

	mu sync.Mutex
	// +checklocks:mu
	mounts []mount // what clients have mounted and not unmounted, as far as they report it; the oldest is first
}

type mount struct {
	client netip.Addr
	path   string
}

// NewProgram returns the server's side of MOUNT version 3.
func NewProgram(exports Exports, log *slog.Logger) oncrpc.Program {
	s := &service{exports: exports, mounted: stats.NewLines(log, logBurst, logPeriod), refused: stats.NewLines(log, logBurst, logPeriod)}
	return oncrpc.Program{
		Number:  mount3.Program,
		Version: mount3.Version,
		Procedures: []oncrpc.Procedure{
			mount3.ProcNull:    {Name: "MOUNT NULL", Handle: null, AnyAuth: true},
			mount3.ProcMnt:     {Name: "MNT", Handle: s.mnt, AnyAuth: true},
			mount3.ProcDump:    {Name: "DUMP", Handle: s.dump, AnyAuth: true, NoStatus: true},
			mount3.ProcUmnt:    {Name: "UMNT", Handle: s.umnt, AnyAuth: true},
			mount3.ProcUmntAll: {Name: "UMNTALL", Handle: s.umntAll, AnyAuth: true},
			mount3.ProcExport:  {Name: "EXPORT", Handle: s.export, AnyAuth: true, NoStatus: true},
		},
	}
}

func null(*oncrpc.Call) rpc.AcceptStat { return rpc.Success }

// path decodes the argument of MNT and UMNT; ok is false if it is malformed.
func path(c *oncrpc.Call) (name string, ok bool) {
	var args mount3.PathArgs
	args.Decode(&c.Args)
	return string(args.Path), c.Args.Finish() == nil
}

func (s *service) mnt(c *oncrpc.Call) rpc.AcceptStat {
	name, ok := path(c)
	if !ok {
		return rpc.GarbageArgs
	}
	client := c.Client.Addr().Unmap()
	fh, status := s.exports.Root(name, netip.AddrPortFrom(client, c.Client.Port()))
	res := mount3.MntRes{Status: status}
	if status == mount3.OK {
		res.Handle, res.Flavors = fh, []rpc.AuthFlavor{rpc.AuthSys}
		s.add(mount{client, name})
		s.mounted.Log(slog.LevelInfo, "mount: mounted", "path", name, "client", client)
	} else {
		s.refused.Log(slog.LevelInfo, "mount: refused", "path", name, "client", client, "status", status)
	}
	c.Reply = res.Append(c.Reply)
	return rpc.Success
}

func (s *service) add(m mount) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(func(have mount) bool { return have == m })
	if len(s.mounts) == mountsMax {
		s.mounts = append(s.mounts[:0], s.mounts[1:]...)
	}
	s.mounts = append(s.mounts, m)
}

// dropLocked removes mounts from the list.
//
// +checklocks:s.mu
func (s *service) dropLocked(gone func(mount) bool) {
	kept := s.mounts[:0]
	for _, m := range s.mounts {
		if !gone(m) {
			kept = append(kept, m)
		}
	}
	s.mounts = kept
}

func (s *service) umnt(c *oncrpc.Call) rpc.AcceptStat {
	name, ok := path(c)
	if !ok {
		return rpc.GarbageArgs
	}
	gone := mount{c.Client.Addr().Unmap(), name}
	s.mu.Lock()
	s.dropLocked(func(have mount) bool { return have == gone })
	s.mu.Unlock()
	return rpc.Success
}

func (s *service) umntAll(c *oncrpc.Call) rpc.AcceptStat {
	client := c.Client.Addr().Unmap()
	s.mu.Lock()
	s.dropLocked(func(have mount) bool { return have.client == client })
	s.mu.Unlock()
	return rpc.Success
}

func (s *service) dump(c *oncrpc.Call) rpc.AcceptStat {
	return reply(c, func(b []byte) []byte {
		var res mount3.DumpRes
		s.mu.Lock()
		for _, m := range s.mounts {
			res.Mounts = append(res.Mounts, mount3.Mount{Hostname: []byte(m.client.String()), Directory: []byte(m.path)})
		}
		s.mu.Unlock()
		return res.Append(b)
	})
}

func (s *service) export(c *oncrpc.Call) rpc.AcceptStat {
	return reply(c, func(b []byte) []byte {
		var res mount3.ExportRes
		for _, name := range s.exports.List() {
			res.Exports = append(res.Exports, mount3.Export{Directory: []byte(name)})
		}
		return res.Append(b)
	})
}

// listMax is the maximum size of a list, in bytes: 1 MiB, like the largest record.
const listMax = 1 << 20

// reply sends a list. It builds the list twice: first only for its size, because a call that waits
// for the memory must not hold a list.
func reply(c *oncrpc.Call, list func([]byte) []byte) rpc.AcceptStat {
	size := len(list(nil))
	if size > listMax || !c.Reserve(size) {
		return rpc.SystemErr // there are tens of thousands of volumes; no mount needs the list
	}
	c.Reply = list(c.Reply)
	return rpc.Success
}
