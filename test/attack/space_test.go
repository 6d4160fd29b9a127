//go:build attack

package attack_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
)

// spaceSlack is how much more than its size a volume may take on the disk: the blocks of
// directories and of files' maps, which are counted when they are there.
const spaceSlack = 2 << 20

// allocatedAhead is how many times a volume's size XFS may take while files are open.
const allocatedAhead = 3

// spend has a volume attacked, and looks at what it has taken of the disk.
func (a *assault) spend(volume string, size int64, attack func()) {
	a.Helper()
	before, inodes := a.disk.spent()
	a.beside(attack)
	a.within(volume, size, before)
	_, after := a.disk.spent()
	a.note("%d inodes", after-inodes)
}

// within holds what was taken of the disk since there were so many bytes against the
// size of a volume. XFS allocates ahead of files, up to twice what they have, until they
// are closed: some seconds after they were written.
func (a *assault) within(volume string, size, before int64) {
	a.Helper()
	after, _ := a.disk.spent()
	a.note("%s took %s", mib(size), mib(after-before))
	if a.fs == "xfs" && a.quota == "server" && after-before > size+spaceSlack {
		// XFS allocates ahead of files that grow; docs/internals/counting.md says how much. The file
		// system gives that back when nothing is open.
		if after-before > allocatedAhead*size {
			a.Errorf("%s, a volume of %s, took %s of the disk with what is allocated ahead", volume, mib(size), mib(after-before))
		}
		a.server.stop()
		a.disk.remount()
		a.server.serve()
		after, _ = a.disk.spent()
		a.note("%s once nothing is open", mib(after-before))
	}
	if after-before > size+spaceSlack {
		a.Errorf("%s, a volume of %s, took %s of the disk", volume, mib(size), mib(after-before))
	}
}

// fill writes 1 MiB blocks to new files until the volume has refused some, or most bytes
// were taken, and tells how many were.
func (a *assault) fill(volume string, most int64) (written int64) {
	a.Helper()
	var taken atomic.Int64
	var wg sync.WaitGroup
	data := pattern(1, 1<<20)
	for i := range 4 {
		c, root := a.client(volume)
		wg.Go(func() {
			res, err := c.Create(a.ctx, nfs3.CreateArgs{Where: where(root, fmt.Sprint("fill-", i, "-", a.rng.Uint32()))})
			if said(res.Status, err) != nil {
				return // it is full
			}
			for offset := uint64(0); taken.Load() < most; {
				res, err := c.Write(a.ctx, res.Object, offset, nfs3.Unstable, data)
				if said(res.Status, err) != nil || res.Count == 0 {
					return
				}
				taken.Add(int64(res.Count))
				offset += uint64(res.Count)
			}
		})
	}
	wg.Wait()
	return taken.Load()
}

// What the kernel counts by itself needs no attack on our counting, but holds too.
var spaceAttacks = []attack{
	{
		name:  "a size near 2^63",
		does:  "SETATTR of sizes and WRITE of single bytes within 128 KiB of 2^63 and of 2^32 blocks, then writes as much as it can",
		holds: "the volume takes no more of the disk than its size",
		also:  kinds{xfs, kernel},
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			c, root := a.client("prey")
			a.spend("prey", 64<<20, func() {
				taken := 0
				for i := range 40 * a.factor {
					file := a.create(c, root, fmt.Sprint("huge-", i), nfs3.Sattr{})
					n := uint64(math.MaxInt64)
					if i > 0 {
						n = []uint64{1 << 63, 1 << 63, 1 << 41, 1 << 44, 1 << 32}[a.rng.IntN(5)] + a.rng.Uint64N(256<<10) - 128<<10
					}
					res, err := c.Setattr(a.ctx, nfs3.SetattrArgs{Object: file, Attr: size(n)})
					if said(res.Status, err) == nil {
						taken++
					}
					if i == 1 {
						n = math.MaxInt64 - 1
					}
					// Nothing is said of what a server answers, only of what it then counts.
					_, _ = c.Write(a.ctx, file, n, nfs3.Unstable, []byte{1})
					_, _ = c.Write(a.ctx, file, n-1, nfs3.Unstable, []byte{1})
				}
				a.note("%d sizes were taken, %s written after them", taken, mib(a.fill("prey", 400<<20)))
			})
		},
	},
	{
		name:  "holes filled by many at once",
		does:  "makes sparse files and has many connections fill their holes in windows, at random",
		holds: "the volume takes no more of the disk than its size",
		also:  kinds{xfs},
		run: func(a *assault) {
			a.volume("prey", "64Mi", "--sync=false")
			c, root := a.client("prey")
			var files []nfs3.FH
			for i := range 4 {
				file := a.create(c, root, fmt.Sprint("hole-", i), nfs3.Sattr{})
				res, err := c.Setattr(a.ctx, nfs3.SetattrArgs{Object: file, Attr: size(1 << 40)})
				ok(a, "SETATTR", res.Status, err)
				files = append(files, file)
			}
			a.spend("prey", 64<<20, func() {
				data := pattern(2, 64<<10)
				until := time.Now().Add(a.window)
				var wg sync.WaitGroup
				var taken atomic.Int64
				for i := range 8 {
					conn, rng := a.conn(i), randomFor(fmt.Sprint(a.rng.Uint64()), i)
					wg.Go(func() {
						_ = flood(conn, 64, func(i int) (rpc.Auth, uint32, rpc.Args, bool) {
							args := &nfs3.WriteArgs{File: files[rng.IntN(4)], Offset: rng.Uint64N(1 << 40), Data: data, Count: uint32(len(data))}
							return caller(0, 0), nfs3.ProcWrite, args, time.Now().Before(until) && taken.Load() < 1<<30
						}, func(_ int, status nfs3.Status) {
							if status == nfs3.OK {
								taken.Add(int64(len(data)))
							}
						})
					})
				}
				wg.Wait()
				a.note("%s written", mib(taken.Load()))
			})
		},
	},
	{
		name:  "a flood of directories",
		does:  "MKDIR of empty directories in a volume of 1 MiB, as fast as it goes",
		holds: "the volume takes no more of the disk than its size, and a few thousand inodes",
		also:  kinds{xfs},
		run: func(a *assault) {
			a.volume("prey", "1Mi", "--sync=false")
			_, before := a.disk.spent()
			a.spend("prey", 1<<20, func() { a.makeMany("prey", 4*a.window, 20_000*a.factor, 4, "") })
			if _, after := a.disk.spent(); after-before > 4096 {
				a.Errorf("a volume of 1 MiB has %d inodes", after-before)
			}
		},
	},
	{
		name:  "all inodes of the disk",
		does:  "makes empty files in a volume of 4 MiB on an ext4 of 30,000 inodes until it is refused",
		holds: "other volumes can make files",
		on:    func(s setup) bool { return s.fs == "ext4" },
		inode: 30_000,
		also:  kinds{kernel},
		run: func(a *assault) {
			a.volume("prey", "4Mi", "--sync=false")
			c, root := a.client("prey")
			before, err := c.Fsstat(a.ctx, root)
			ok(a, "FSSTAT", before.Status, err)
			a.spend("prey", 4<<20, func() { a.makeMany("prey", 8*a.window, 40_000, 4, "file") })
			_, inodes := a.disk.spent()
			if inodes > 20_000 {
				a.Errorf("one volume of 4 MiB took %d of the disk's 30,000 inodes", inodes)
			}
			if before.TFiles >= 30_000 {
				a.Errorf("FSSTAT says that a volume of 4 MiB has %d inodes", before.TFiles)
			}
		},
	},
	{
		name:  "links into a full volume",
		does:  "fills a volume, then makes hard links with long names as fast as it goes",
		holds: "the volume takes no more of the disk than its size",
		on:    func(s setup) bool { return s.engine == "native" },
		also:  kinds{xfs},
		run: func(a *assault) {
			a.volume("prey", "4Mi", "--sync=false")
			c, root := a.client("prey")
			file := a.create(c, root, "linked", nfs3.Sattr{})
			a.spend("prey", 4<<20, func() {
				a.fill("prey", 64<<20)
				a.makeMany("prey", 4*a.window, 60_000, 4, "link", file)
			})
		},
	},
	{
		name:  "renames in a full volume",
		does:  "makes 20,000 files with short names, fills the volume, then renames them to long names, so that the directory grows",
		holds: "the volume takes no more of the disk than its size",
		on:    func(s setup) bool { return s.engine == "native" },
		also:  kinds{xfs},
		run: func(a *assault) {
			a.volume("prey", "256Mi", "--sync=false")
			c, root := a.client("prey")
			dir := a.mkdir(c, root, "renamed")
			const files = 20_000
			made, renamed, refused := 0, 0, 0
			before, _ := a.disk.spent()
			must(a, flood(a.conn(0), 128, func(i int) (rpc.Auth, uint32, rpc.Args, bool) {
				return caller(0, 0), nfs3.ProcCreate, &nfs3.CreateArgs{Where: where(dir, fmt.Sprint(i))}, i < files
			}, func(_ int, status nfs3.Status) {
				if status == nfs3.OK {
					made++
				}
			}))
			a.beside(func() {
				a.fill("prey", 512<<20)
				must(a, flood(a.conn(0), 128, func(i int) (rpc.Auth, uint32, rpc.Args, bool) {
					return caller(0, 0), nfs3.ProcRename, &nfs3.RenameArgs{From: where(dir, fmt.Sprint(i)), To: where(dir, fmt.Sprintf("%0250d", i))}, i < made
				}, func(_ int, status nfs3.Status) {
					if status == nfs3.OK {
						renamed++
					} else {
						refused++
					}
				}))
			})
			a.note("%d renamed, %d refused", renamed, refused)
			a.within("prey", 256<<20, before)
		},
	},
	{
		name:  "writes while the server counts",
		does:  "kills and starts the server on a volume with 20,000 files, and writes from the first moment on",
		holds: "the volume takes no more of the disk than its size",
		on:    func(s setup) bool { return s.quota == "server" },
		also:  kinds{xfs},
		run: func(a *assault) {
			before, _ := a.disk.spent()
			a.plant("prey", 20_000, 8<<10)
			a.server.adopt("prey", "256Mi")
			a.server.kill()
			a.server.start()
			eventually(a, 30*time.Second, "podnas does not serve", func() bool {
				c, _, err := mountFrom(a.ctx, mallory(0), "prey")
				if err == nil {
					c.Close()
				}
				return err == nil
			})
			written := a.fill("prey", 512<<20)
			eventually(a, 30*time.Second, "podnas is not ready", func() bool { return ready(time.Second) == nil })
			a.note("%s written after the start", mib(written))
			a.within("prey", 256<<20, before)
		},
	},
	{
		name:  "files put there by hand",
		does:  "somebody puts files on the disk past the server, a client removes them and writes for what that gave back",
		holds: "the volume takes no more of the disk than its size",
		on:    func(s setup) bool { return s.quota == "server" },
		also:  kinds{xfs},
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			c, root := a.client("prey")
			a.spend("prey", 64<<20, func() {
				for i := range 3 {
					a.fill("prey", 400<<20)
					name := fmt.Sprint("by-hand-", i)
					must(a, os.WriteFile(a.path("prey", name), pattern(i, 24<<20), 0o666))
					res, err := c.Remove(a.ctx, root, name)
					ok(a, "REMOVE", res.Status, err)
				}
				a.fill("prey", 400<<20)
			})
		},
	},
	{
		name:  "what a file system takes ahead",
		does:  "appends to 64 files in turns, so that XFS allocates ahead of each, until the volume is full",
		holds: "the volume takes no more than three times its size, and no more than its size when nothing is open",
		on:    func(s setup) bool { return s.quota == "server" && s.fs == "xfs" },
		also:  kinds{xfs},
		run: func(a *assault) {
			a.volume("prey", "64Mi", "--sync=false")
			c, root := a.client("prey")
			var files []nfs3.FH
			for i := range 64 {
				files = append(files, a.create(c, root, fmt.Sprint("p-", i), nfs3.Sattr{}))
			}
			a.spend("prey", 64<<20, func() {
				data := pattern(3, 64<<10)
				for offset := uint64(0); offset < 4<<20; offset += uint64(len(data)) {
					for _, file := range files {
						res, err := c.Write(a.ctx, file, offset, nfs3.Unstable, data)
						if said(res.Status, err) != nil {
							return
						}
					}
				}
			})
		},
	},
}

// makeMany makes up to n names in a volume, over some connections, for so long: empty
// directories, with kind "file" files, with kind "link" links to a file. It gives up
// after 2,000 refusals.
func (a *assault) makeMany(volume string, within time.Duration, n, connections int, kind string, file ...nfs3.FH) {
	a.Helper()
	until := time.Now().Add(within)
	var made, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range connections {
		c, root := a.client(volume)
		// Directories of its own, since changes of one wait for each other. In a volume
		// that is full they are not to be had.
		dir := root
		if res, err := c.Mkdir(a.ctx, root, fmt.Sprint("many-", i), mode(0o777)); said(res.Status, err) == nil {
			dir = res.Object
		}
		conn := a.conn(i)
		wg.Go(func() {
			_ = flood(conn, 128, func(j int) (rpc.Auth, uint32, rpc.Args, bool) {
				name := fmt.Sprintf("%d-%08d", i, j)
				more := made.Load() < int64(n) && refused.Load() < 2000 && time.Now().Before(until)
				switch kind {
				case "file":
					return caller(0, 0), nfs3.ProcCreate, &nfs3.CreateArgs{Where: where(dir, name)}, more
				case "link":
					name = fmt.Sprintf("%d-%0230d", i, j)
					return caller(0, 0), nfs3.ProcLink, &nfs3.LinkArgs{File: file[0], Link: where(dir, name)}, more
				}
				return caller(0, 0), nfs3.ProcMkdir, &nfs3.MkdirArgs{Where: where(dir, name)}, more
			}, func(_ int, status nfs3.Status) {
				if status == nfs3.OK {
					made.Add(1)
				} else {
					refused.Add(1)
				}
			})
		})
	}
	wg.Wait()
	a.note("%d made, %d refused", made.Load(), refused.Load())
}

// plant puts files on the disk that are to become a volume.
func (a *assault) plant(volume string, files int, size int) {
	a.Helper()
	data := pattern(4, size)
	must(a, os.Mkdir(a.path(volume), 0o777))
	for i := range files {
		dir := a.path(volume, fmt.Sprint("planted-", i/1000))
		if i%1000 == 0 {
			must(a, os.Mkdir(dir, 0o777))
		}
		must(a, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), data, 0o666))
	}
}
