package nfsv3

import (
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/vfs"
)

// fsstat: RFC 1813 section 3.3.18. The numbers are the volume's, whatever file
// the handle is of.
func (t *task) fsstat(args *nfs3.HandleArgs) (result, rpc.AcceptStat) {
	return t.about(args, func(f *inode.File, err error) result {
		res := &nfs3.FsstatRes{Status: t.statusOf(err)}
		if err != nil {
			return res
		}
		res.Attr = postOpOf(f)
		st, err := f.Volume.Statfs()
		if res.Status = t.statusOf(err); err == nil {
			res.TBytes, res.FBytes, res.ABytes = st.Size, st.Free, st.Available
			res.TFiles, res.FFiles, res.AFiles = st.Files, st.FreeFiles, st.FreeFiles
		}
		return res
	})
}

// fsinfo: section 3.3.19.
func (t *task) fsinfo(args *nfs3.HandleArgs) (result, rpc.AcceptStat) {
	return t.about(args, func(f *inode.File, err error) result {
		if err != nil {
			return &nfs3.FsinfoRes{Status: t.statusOf(err)}
		}
		const block = 4096 // pages: nothing smaller is read or written
		return &nfs3.FsinfoRes{
			Attr:  postOpOf(f),
			RtMax: ioMax, RtPref: ioMax, RtMult: block,
			WtMax: ioMax, WtPref: ioMax, WtMult: block,
			DtPref:      64 << 10,
			MaxFileSize: vfs.MaxOffset,
			TimeDelta:   nfs3.Time{Nsec: 1},
			Properties:  nfs3.FSFLink | nfs3.FSFSymlink | nfs3.FSFHomogeneous | nfs3.FSFCanSetTime,
		}
	})
}

// pathconf: section 3.3.20.
func (t *task) pathconf(args *nfs3.HandleArgs) (result, rpc.AcceptStat) {
	return t.about(args, func(f *inode.File, err error) result {
		res := &nfs3.PathconfRes{Status: t.statusOf(err)}
		if err != nil {
			return res
		}
		res.Attr = postOpOf(f)
		st, err := f.Volume.Statfs()
		if res.Status = t.statusOf(err); err == nil {
			res.LinkMax, res.NameMax = st.LinkMax, st.NameMax
			res.NoTrunc, res.ChownRestricted, res.CasePreserving = true, true, true
		}
		return res
	})
}

// about answers a question about the file system that a file is in.
func (t *task) about(args *nfs3.HandleArgs, answer func(*inode.File, error) result) (result, rpc.AcceptStat) {
	return answer(t.Open(args.Object, inode.UseAttr)), rpc.Success
}
