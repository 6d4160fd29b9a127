package nfstest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// callTimeout is how long a call may take. A test that fails says more than one
// that hangs.
const callTimeout = 30 * time.Second

// Client calls NFS and MOUNT, each over its own connection. A method returns the
// decoded results, whatever their status; its error is the transport's, RPC's
// (*rpc.RPCError), or that of results that violate RFC 1813. Many goroutines may
// use it.
type Client struct {
	nfs, mount *rpc.Client
	cred       rpc.Auth

	// lenient accepts results with trailing bytes, and failures that end after
	// the status.
	lenient bool
}

// Dial connects as root without supplementary groups.
func Dial(ctx context.Context, addr, mountAddr string) (*Client, error) {
	nfs, err := rpc.Dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("connect to NFS: %w", err)
	}
	mount, err := rpc.Dial(ctx, mountAddr)
	if err != nil {
		nfs.Close()
		return nil, fmt.Errorf("connect to MOUNT: %w", err)
	}
	return NewClient(nfs, mount), nil
}

// NewClient is Dial for existing connections, which may be the same. The client owns
// them.
func NewClient(nfs, mount *rpc.Client) *Client {
	c := &Client{nfs: nfs, mount: mount}
	return c.As(0, 0)
}

// As returns a client with another identity. It shares the connections.
func (c *Client) As(uid, gid uint32, groups ...uint32) *Client {
	cred := rpc.SysCred{MachineName: []byte("nfstest"), UID: uid, GID: gid}
	cred.SetGroups(groups...)
	return &Client{nfs: c.nfs, mount: c.mount, cred: cred.Auth(), lenient: c.lenient}
}

// Close ends both connections.
func (c *Client) Close() {
	c.nfs.Close()
	c.mount.Close()
}

type result interface {
	Decode(d *xdr.Decoder)
}

// call makes one call and decodes its results, which must fill the reply.
func (c *Client) call(ctx context.Context, conn *rpc.Client, h rpc.CallHeader, args rpc.Args, res result) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	h.RPCVersion = rpc.Version
	b, err := conn.Do(ctx, h, args)
	if err != nil {
		return err
	}
	d := xdr.NewDecoder(b)
	if res != nil {
		res.Decode(&d)
	}
	err = d.Finish()
	if c.lenient {
		// Results begin with their status, which is not 0 in a failure.
		failure := len(b) >= 4 && [4]byte(b) != [4]byte{}
		if errors.Is(err, xdr.ErrTrailing) || failure && errors.Is(err, xdr.ErrShort) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("decode the results: %w", err)
	}
	return nil
}

func (c *Client) callNFS(ctx context.Context, proc uint32, args rpc.Args, res result) error {
	h := rpc.CallHeader{Prog: nfs3.Program, Vers: nfs3.Version, Proc: proc, Cred: c.cred}
	return c.call(ctx, c.nfs, h, args, res)
}

func (c *Client) callMount(ctx context.Context, proc uint32, args rpc.Args, res result) error {
	h := rpc.CallHeader{Prog: mount3.Program, Vers: mount3.Version, Proc: proc, Cred: c.cred}
	return c.call(ctx, c.mount, h, args, res)
}

// MountNull calls MOUNT's NULL.
func (c *Client) MountNull(ctx context.Context) error {
	return c.callMount(ctx, mount3.ProcNull, nil, nil)
}

// Mount calls MNT.
func (c *Client) Mount(ctx context.Context, path string) (res mount3.MntRes, err error) {
	err = c.callMount(ctx, mount3.ProcMnt, &mount3.PathArgs{Path: []byte(path)}, &res)
	return res, err
}

// Dump calls DUMP.
func (c *Client) Dump(ctx context.Context) (res mount3.DumpRes, err error) {
	err = c.callMount(ctx, mount3.ProcDump, nil, &res)
	return res, err
}

// Unmount calls UMNT.
func (c *Client) Unmount(ctx context.Context, path string) error {
	return c.callMount(ctx, mount3.ProcUmnt, &mount3.PathArgs{Path: []byte(path)}, nil)
}

// UnmountAll calls UMNTALL.
func (c *Client) UnmountAll(ctx context.Context) error {
	return c.callMount(ctx, mount3.ProcUmntAll, nil, nil)
}

// Exports calls EXPORT.
func (c *Client) Exports(ctx context.Context) (res mount3.ExportRes, err error) {
	err = c.callMount(ctx, mount3.ProcExport, nil, &res)
	return res, err
}

// Null calls NULL.
func (c *Client) Null(ctx context.Context) error {
	return c.callNFS(ctx, nfs3.ProcNull, nil, nil)
}

// Getattr calls GETATTR.
func (c *Client) Getattr(ctx context.Context, fh nfs3.FH) (res nfs3.GetattrRes, err error) {
	err = c.callNFS(ctx, nfs3.ProcGetattr, &nfs3.GetattrArgs{Object: fh}, &res)
	return res, err
}

// Setattr calls SETATTR.
func (c *Client) Setattr(ctx context.Context, args nfs3.SetattrArgs) (res nfs3.SetattrRes, err error) {
	err = c.callNFS(ctx, nfs3.ProcSetattr, &args, &res)
	return res, err
}

// Lookup calls LOOKUP.
func (c *Client) Lookup(ctx context.Context, dir nfs3.FH, name string) (res nfs3.LookupRes, err error) {
	err = c.callNFS(ctx, nfs3.ProcLookup, where(dir, name), &res)
	return res, err
}

// Access calls ACCESS.
func (c *Client) Access(ctx context.Context, fh nfs3.FH, access uint32) (res nfs3.AccessRes, err error) {
	err = c.callNFS(ctx, nfs3.ProcAccess, &nfs3.AccessArgs{Object: fh, Access: access}, &res)
	return res, err
}

// Readlink calls READLINK.
func (c *Client) Readlink(ctx context.Context, fh nfs3.FH) (res nfs3.ReadlinkRes, err error) {
	err = c.callNFS(ctx, nfs3.ProcReadlink, &nfs3.ReadlinkArgs{Object: fh}, &res)
	return res, err
}

// Read calls READ.
func (c *Client) Read(ctx context.Context, fh nfs3.FH, offset uint64, count uint32) (res nfs3.ReadRes, err error) {
	err = c.callNFS(ctx, nfs3.ProcRead, &nfs3.ReadArgs{File: fh, Offset: offset, Count: count}, &res)
	return res, err
}

// Write calls WRITE.
func (c *Client) Write(ctx context.Context, fh nfs3.FH, offset uint64, stable nfs3.StableHow, data []byte) (res nfs3.WriteRes, err error) {
	err = c.callNFS(ctx, nfs3.ProcWrite, &nfs3.WriteArgs{File: fh, Offset: offset, Count: uint32(len(data)), Stable: stable, Data: data}, &res)
	return res, err
}

// Create calls CREATE.
func (c *Client) Create(ctx context.Context, args nfs3.CreateArgs) (res nfs3.CreateRes, err error) {
	err = c.callNFS(ctx, nfs3.ProcCreate, &args, &res)
	return res, err
}

// Mkdir calls MKDIR.
func (c *Client) Mkdir(ctx context.Context, dir nfs3.FH, name string, attr nfs3.Sattr) (res nfs3.MkdirRes, err error) {
	err = c.callNFS(ctx, nfs3.ProcMkdir, &nfs3.MkdirArgs{Where: *where(dir, name), Attr: attr}, &res)
	return res, err
}

// Symlink calls SYMLINK.
func (c *Client) Symlink(ctx context.Context, dir nfs3.FH, name, target string) (res nfs3.SymlinkRes, err error) {
	err = c.callNFS(ctx, nfs3.ProcSymlink, &nfs3.SymlinkArgs{Where: *where(dir, name), Path: []byte(target)}, &res)
	return res, err
}

// Mknod calls MKNOD.
func (c *Client) Mknod(ctx context.Context, args nfs3.MknodArgs) (res nfs3.MknodRes, err error) {
	err = c.callNFS(ctx, nfs3.ProcMknod, &args, &res)
	return res, err
}

// Remove calls REMOVE.
func (c *Client) Remove(ctx context.Context, dir nfs3.FH, name string) (res nfs3.RemoveRes, err error) {
	err = c.callNFS(ctx, nfs3.ProcRemove, where(dir, name), &res)
	return res, err
}

// Rmdir calls RMDIR.
func (c *Client) Rmdir(ctx context.Context, dir nfs3.FH, name string) (res nfs3.RmdirRes, err error) {
	err = c.callNFS(ctx, nfs3.ProcRmdir, where(dir, name), &res)
	return res, err
}

// Rename calls RENAME.
func (c *Client) Rename(ctx context.Context, fromDir nfs3.FH, from string, toDir nfs3.FH, to string) (res nfs3.RenameRes, err error) {
	err = c.callNFS(ctx, nfs3.ProcRename, &nfs3.RenameArgs{From: *where(fromDir, from), To: *where(toDir, to)}, &res)
	return res, err
}

// Link calls LINK.
func (c *Client) Link(ctx context.Context, fh, dir nfs3.FH, name string) (res nfs3.LinkRes, err error) {
	err = c.callNFS(ctx, nfs3.ProcLink, &nfs3.LinkArgs{File: fh, Link: *where(dir, name)}, &res)
	return res, err
}

// Readdir calls READDIR.
func (c *Client) Readdir(ctx context.Context, args nfs3.ReaddirArgs) (res nfs3.ReaddirRes, err error) {
	err = c.callNFS(ctx, nfs3.ProcReaddir, &args, &res)
	return res, err
}

// Readdirplus calls READDIRPLUS.
func (c *Client) Readdirplus(ctx context.Context, args nfs3.ReaddirplusArgs) (res nfs3.ReaddirplusRes, err error) {
	err = c.callNFS(ctx, nfs3.ProcReaddirplus, &args, &res)
	return res, err
}

// Fsstat calls FSSTAT.
func (c *Client) Fsstat(ctx context.Context, fh nfs3.FH) (res nfs3.FsstatRes, err error) {
	err = c.callNFS(ctx, nfs3.ProcFsstat, &nfs3.FsstatArgs{Object: fh}, &res)
	return res, err
}

// Fsinfo calls FSINFO.
func (c *Client) Fsinfo(ctx context.Context, fh nfs3.FH) (res nfs3.FsinfoRes, err error) {
	err = c.callNFS(ctx, nfs3.ProcFsinfo, &nfs3.FsinfoArgs{Object: fh}, &res)
	return res, err
}

// Pathconf calls PATHCONF.
func (c *Client) Pathconf(ctx context.Context, fh nfs3.FH) (res nfs3.PathconfRes, err error) {
	err = c.callNFS(ctx, nfs3.ProcPathconf, &nfs3.PathconfArgs{Object: fh}, &res)
	return res, err
}

// Commit calls COMMIT.
func (c *Client) Commit(ctx context.Context, fh nfs3.FH, offset uint64, count uint32) (res nfs3.CommitRes, err error) {
	err = c.callNFS(ctx, nfs3.ProcCommit, &nfs3.CommitArgs{File: fh, Offset: offset, Count: count}, &res)
	return res, err
}

func where(dir nfs3.FH, name string) *nfs3.DirOpArgs {
	return &nfs3.DirOpArgs{Dir: dir, Name: []byte(name)}
}
