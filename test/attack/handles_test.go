//go:build attack

package attack_test

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// movedNoticed is when docs/internals/semantics.md says that a directory that was moved away is stale.
const movedNoticed = 2500 * time.Millisecond

var handleAttacks = []attack{
	{
		name:  "handles that nobody was given",
		does:  "handles with every bit flipped, cut, made longer, put together of two, and random ones, in every call",
		holds: "none is taken",
		also:  kinds{gonfs, race, xfs},
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			a.volume("other", "64Mi")
			c, root := a.client("prey")
			_, otherRoot := a.client("other")
			file := a.create(c, root, "file", mode(0o666))
			guesses := guessedHandles(a, 64, root, otherRoot, file)
			taken := 0
			conn := a.conn(0)
			err := flood(conn, 64, func(i int) (rpc.Auth, uint32, rpc.Args, bool) {
				if i >= 3*len(guesses) {
					return rpc.Auth{}, 0, nil, false
				}
				fh := nfs3.FH(guesses[i/3])
				switch i % 3 {
				case 0:
					return caller(0, 0), nfs3.ProcRead, &nfs3.ReadArgs{File: fh, Count: 10}, true
				case 1:
					return caller(0, 0), nfs3.ProcSetattr, &nfs3.SetattrArgs{Object: fh, Attr: mode(0o777)}, true
				}
				return caller(0, 0), nfs3.ProcGetattr, &nfs3.GetattrArgs{Object: fh}, true
			}, func(i int, status nfs3.Status) {
				if status == nfs3.OK {
					taken++
					a.Errorf("a handle that nobody was given was taken: %x (those that are: %x, %x, %x)", guesses[i/3], root, file, otherRoot)
				}
			})
			must(a, err)
			a.note("%d handles", len(guesses))
		},
	},
	{
		name:  "handles of others' volumes",
		does:  "uses handles of a volume for other addresses, of one that is read-only, of removed files, and names and links across volumes",
		holds: "each volume's rules hold for its handles",
		on:    func(s setup) bool { return s.engine == "native" },
		also:  kinds{xfs},
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			a.volume("private", "64Mi", "--allowed-clients="+mountedClient)
			a.volume("fixed", "64Mi", "--read-only")
			must(a, os.WriteFile(a.path("fixed", "file"), []byte("fixed"), 0o666))
			c, root := a.client("prey")
			owner, private, err := mountFrom(a.ctx, mountedClient, "private")
			must(a, err)
			defer owner.Close()
			secret := a.create(owner, private, "secret", mode(0o666))
			refused := func(what string, status nfs3.Status, err error) {
				a.Helper()
				if err == nil && status == nfs3.OK {
					a.Errorf("%s succeeded", what)
				}
			}
			mnt, err := c.Mount(a.ctx, "/private")
			if err == nil && mnt.Status == mount3.OK {
				a.Error("MNT of a volume for other addresses succeeded")
			}
			for _, fh := range []nfs3.FH{private, secret} {
				got, err := c.Getattr(a.ctx, fh)
				refused("GETATTR from another address", got.Status, err)
				read, err := c.Read(a.ctx, fh, 0, 10)
				refused("READ from another address", read.Status, err)
				list, err := c.Readdirplus(a.ctx, nfs3.ReaddirplusArgs{Dir: fh, DirCount: 1000, MaxCount: 8000})
				refused("READDIRPLUS from another address", list.Status, err)
				link, err := c.Link(a.ctx, fh, root, "linked")
				refused("LINK from another address", link.Status, err)
			}
			moved, err := c.Rename(a.ctx, private, "secret", root, "stolen")
			refused("RENAME out of another volume", moved.Status, err)
			// One that may use both can't join them.
			link, err := owner.Link(a.ctx, secret, root, "linked")
			refused("LINK across volumes", link.Status, err)
			moved, err = owner.Rename(a.ctx, private, "secret", root, "moved")
			refused("RENAME across volumes", moved.Status, err)

			_, fixed := a.client("fixed")
			found, err := c.Lookup(a.ctx, fixed, "file")
			ok(a, "LOOKUP", found.Status, err)
			write, err := c.Write(a.ctx, found.Object, 0, nfs3.FileSync, []byte("x"))
			refused("WRITE to a volume that is read-only", write.Status, err)
			set, err := c.Setattr(a.ctx, nfs3.SetattrArgs{Object: found.Object, Attr: size(0)})
			refused("SETATTR in a volume that is read-only", set.Status, err)
			create, err := c.Create(a.ctx, nfs3.CreateArgs{Where: where(fixed, "new")})
			refused("CREATE in a volume that is read-only", create.Status, err)
			remove, err := c.Remove(a.ctx, fixed, "file")
			refused("REMOVE in a volume that is read-only", remove.Status, err)

			file := a.create(c, root, "removed", mode(0o666))
			gone, err := c.Remove(a.ctx, root, "removed")
			ok(a, "REMOVE", gone.Status, err)
			a.create(c, root, "anew", mode(0o600))
			got, err := c.Getattr(a.ctx, file)
			refused("GETATTR of a file that was removed", got.Status, err)
		},
	},
	{
		name:  "a directory that was moved to another volume",
		does:  "holds handles of a directory and of what is in it while somebody moves it to another volume on the disk",
		holds: "it can't be entered, listed or changed any more, and .. does not tell what is outside",
		on:    func(s setup) bool { return s.quota == "server" && s.engine == "native" },
		also:  kinds{xfs},
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			c, root := a.client("prey")
			dir := a.mkdir(c, root, "dir")
			sub := a.mkdir(c, dir, "sub")
			a.create(c, sub, "file", mode(0o666))
			must(a, os.Rename(a.path("prey", "dir"), a.path(victimVolume, "dir")))
			time.Sleep(movedNoticed)
			for name, fh := range map[string]nfs3.FH{"the directory": dir, "one in it": sub} {
				for _, inside := range []string{"sub", "file", ".."} {
					found, err := c.Lookup(a.ctx, fh, inside)
					if err == nil && found.Status == nfs3.OK {
						a.Errorf("LOOKUP of %q in %s succeeded", inside, name)
					}
				}
				list, err := c.Readdir(a.ctx, nfs3.ReaddirArgs{Dir: fh, Count: 8192})
				if err == nil && list.Status == nfs3.OK {
					a.Errorf("READDIR of %s succeeded: %d names", name, len(list.Entries))
				}
				made, err := c.Create(a.ctx, nfs3.CreateArgs{Where: where(fh, "made")})
				if err == nil && made.Status == nfs3.OK {
					a.Errorf("CREATE in %s succeeded", name)
				}
			}
			var st unix.Stat_t
			must(a, unix.Stat(a.disk.root, &st))
			for _, fh := range []nfs3.FH{root, dir} {
				list, err := c.Readdir(a.ctx, nfs3.ReaddirArgs{Dir: fh, Count: 8192})
				if err != nil || list.Status != nfs3.OK {
					continue
				}
				for _, e := range list.Entries {
					if string(e.Name) == ".." && e.FileID == st.Ino {
						a.Error("READDIR's .. tells the inode of the disk's own root")
					}
				}
			}
		},
	},
	{
		name:  "a call again, with other groups",
		does:  "a call that is refused is sent again with the same xid and the groups that allow it",
		holds: "it is done, and the answer is not that to the other caller",
		on:    func(s setup) bool { return s.engine == "native" },
		also:  kinds{race},
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			c, root := a.client("prey")
			dir := a.mkdir(c, root, "dir")
			set, err := c.Setattr(a.ctx, nfs3.SetattrArgs{Object: dir, Attr: nfs3.Sattr{
				Mode: nfs3.SetUint32{Set: true, Value: 0o770}, GID: nfs3.SetUint32{Set: true, Value: 2000},
			}})
			ok(a, "SETATTR", set.Status, err)
			conn := a.conn(0)
			for _, tt := range []struct {
				cred rpc.Auth
				want nfs3.Status
			}{{caller(1000, 1000), nfs3.ErrAcces}, {caller(1000, 1000, 2000), nfs3.OK}} {
				_, err := conn.Write(call(77, tt.cred, nfs3.ProcCreate, &nfs3.CreateArgs{Where: where(dir, "file")}))
				must(a, err)
				if got := readStatus(a, conn); got != tt.want {
					a.Errorf("CREATE: %v, want %v", got, tt.want)
				}
			}
		},
	},
	{
		name:  "calls from ports that any user may have",
		does:  "mounts a volume of a class with privilegedPorts, and uses a handle of it, from ports above 1023",
		holds: "both are refused; from ports below they are not",
		also:  kinds{gonfs},
		run: func(a *assault) {
			a.server.claim("fenced", map[string]string{"privilegedPorts": "true", "pathPattern": "${pvc.name}"})
			var c *nfstest.Client
			var root nfs3.FH
			eventually(a, 20*time.Second, "the claim gets no volume", func() (made bool) {
				var err error
				c, root, err = mountFrom(a.ctx, mallory(0), "fenced")
				return err == nil
			})
			defer c.Close()
			res, err := c.Getattr(a.ctx, root)
			ok(a, "GETATTR from a port below 1024", res.Status, err)
			var conns [2]*rpc.Client
			for i := range conns {
				dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(mallory(0))}}
				conn, err := dialer.DialContext(a.ctx, "tcp", nfsAddress)
				must(a, err)
				conns[i] = rpc.NewClient(conn)
			}
			anybody := nfstest.NewClient(conns[0], conns[1])
			defer anybody.Close()
			// An RPC error is a refusal too.
			mnt, err := anybody.Mount(a.ctx, "/fenced")
			if err == nil && mnt.Status == mount3.OK {
				a.Error("MNT from a port that any user may have succeeded")
			}
			res, err = anybody.Getattr(a.ctx, root)
			if err == nil && res.Status == nfs3.OK {
				a.Error("GETATTR from a port that any user may have succeeded")
			}
		},
	},
	{
		name:  "a pipe among the claims",
		does:  "a fifo with the name of a manifest is in the folder of claims, beside one that is added later",
		holds: "claims go on being served, and the server ends when it is asked to",
		on:    func(s setup) bool { return s.fs == "ext4" && s.engine == "native" },
		run: func(a *assault) {
			must(a, unix.Mkfifo(a.server.claims+"/pipe.yaml", 0o600))
			time.Sleep(1500 * time.Millisecond) // it is seen
			a.server.claim("late", nil)
			eventually(a, 20*time.Second, "a claim beside a fifo gets no volume", func() bool {
				made, err := os.ReadDir(a.server.claims + "/provisioned")
				return err == nil && len(made) > 0 || err != nil && !errors.Is(err, os.ErrNotExist)
			})
		},
	},
}

// guessedHandles are of up to size bytes, near those that are known, but none of them: with every bit flipped, cut, made longer,
// put together of two, with another number, and random ones.
func guessedHandles(a *assault, size int, known ...[]byte) (guesses [][]byte) {
	guess := func(fh []byte) {
		if !slices.ContainsFunc(known, func(k []byte) bool { return slices.Equal(fh, k) }) {
			guesses = append(guesses, fh)
		}
	}
	for i, fh := range known {
		other := known[(i+1)%len(known)]
		for bit := range 8 * len(fh) {
			flipped := slices.Clone(fh)
			flipped[bit/8] ^= 1 << (bit % 8)
			guess(flipped)
		}
		for n := range len(fh) {
			guess(fh[:n])
			guess(slices.Concat(fh[:n], other[min(n, len(other)):]))
			guess(slices.Concat(other[:min(n, len(other))], fh[n:]))
		}
		guess(append(slices.Clone(fh), 0))
		guess(append(slices.Clone(fh), make([]byte, size-len(fh))...))
		for i := 0; i+8 <= len(fh); i += 2 { // another number, in either byte order
			for n := range uint64(20) {
				guess(binary.BigEndian.AppendUint64(slices.Clone(fh[:i]), n))
				other := slices.Clone(fh)
				binary.LittleEndian.PutUint32(other[i:], uint32(n+2))
				guess(other)
			}
		}
	}
	for range 2000 * a.factor {
		b := make([]byte, a.rng.IntN(size+1))
		for i := range b {
			b[i] = byte(a.rng.Uint32())
		}
		guess(b)
	}
	return guesses
}
