package nfstest

import (
	"context"

	"github.com/podnas/podnas/nfs/nfs3"
)

// Changes returns a call of each procedure that would change a directory, or a file of that name in it: for volumes where nothing
// can be changed. One of them is of NFSACL.
func (c *Client) Changes(ctx context.Context, dir, file nfs3.FH, name string) map[string]func() (nfs3.Status, error) {
	where := nfs3.DirOpArgs{Dir: dir, Name: []byte("new")}
	return map[string]func() (nfs3.Status, error){
		"SETATTR": func() (nfs3.Status, error) {
			res, err := c.Setattr(ctx, nfs3.SetattrArgs{Object: file, Attr: nfs3.Sattr{Size: nfs3.SetUint64{Set: true}}})
			return res.Status, err
		},
		"WRITE": func() (nfs3.Status, error) {
			res, err := c.Write(ctx, file, 0, nfs3.FileSync, []byte("x"))
			return res.Status, err
		},
		"CREATE": func() (nfs3.Status, error) {
			res, err := c.Create(ctx, nfs3.CreateArgs{Where: where})
			return res.Status, err
		},
		"MKDIR": func() (nfs3.Status, error) {
			res, err := c.Mkdir(ctx, dir, "new", nfs3.Sattr{})
			return res.Status, err
		},
		"SYMLINK": func() (nfs3.Status, error) {
			res, err := c.Symlink(ctx, dir, "new", "to")
			return res.Status, err
		},
		"MKNOD": func() (nfs3.Status, error) {
			res, err := c.Mknod(ctx, nfs3.MknodArgs{Where: where, Type: nfs3.TypeFIFO})
			return res.Status, err
		},
		"REMOVE": func() (nfs3.Status, error) {
			res, err := c.Remove(ctx, dir, name)
			return res.Status, err
		},
		"RENAME": func() (nfs3.Status, error) {
			res, err := c.Rename(ctx, dir, name, dir, "new")
			return res.Status, err
		},
		"LINK": func() (nfs3.Status, error) {
			res, err := c.Link(ctx, file, dir, "new")
			return res.Status, err
		},
		"SETACL": func() (nfs3.Status, error) {
			var res nfs3.SetaclRes
			access := nfs3.ACLOf(modeACL(7, 7, 7)...)
			err := c.callACL(ctx, nfs3.ProcSetacl, &nfs3.SetaclArgs{Object: file, Mask: nfs3.ACLMask, Access: access}, &res)
			return res.Status, err
		},
	}
}
