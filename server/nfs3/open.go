package nfs3

import (
	"syscall"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
)

// The files of a call's handles are opened here, where it turns out whose call it
// is: the volume's, which it is counted for. From here on it may wait: for an inode
// that is not in memory, and for whatever else is done for it on the connection's
// goroutine.

// admit has the call count for its volume, unless that refuses the caller's port.
func admit(c *oncrpc.Call, v *export.Volume, f closer) error {
	if !v.AllowsPort(c.Client) {
		f.Close()
		return syscall.EACCES
	}
	c.Served.Volume = &v.Served
	return nil
}

func (s *service) open(c *oncrpc.Call, handle nfs3.FH) (*export.File, error) {
	if !c.MayWait(export.VolumeIn(handle)) {
		return nil, errGone
	}
	f, err := s.opener.Open(c.Client.Addr(), handle)
	if err == nil {
		err = admit(c, f.Volume, f)
	}
	return f, err
}

// look is open of a file of which nothing but the attributes are wanted: if it is
// kept open, the call does not wait.
func (s *service) look(c *oncrpc.Call, handle nfs3.FH) (*export.File, error) {
	f, err := s.opener.OpenAtOnce(c.Client.Addr(), handle)
	if f == nil && err == nil {
		return s.open(c, handle)
	}
	if err == nil {
		err = admit(c, f.Volume, f)
	}
	return f, err
}

func (s *service) openDir(c *oncrpc.Call, handle nfs3.FH) (*export.File, error) {
	if !c.MayWait(export.VolumeIn(handle)) {
		return nil, errGone
	}
	f, err := s.opener.OpenDir(c.Client.Addr(), handle)
	if err == nil {
		err = admit(c, f.Volume, f)
	}
	return f, err
}

// openToRead opens a file's data for readDirectly, which does not wait.
func (s *service) openToRead(c *oncrpc.Call, handle nfs3.FH) (*export.DataFile, error) {
	f, err := s.opener.OpenDataAtOnce(c.Client.Addr(), handle)
	if f == nil && err == nil {
		if !c.MayWait(export.VolumeIn(handle)) {
			return nil, errGone
		}
		f, err = s.opener.OpenData(c.Client.Addr(), handle, false)
	}
	if err == nil {
		err = admit(c, f.Volume, f)
	}
	return f, err
}

func (s *service) openToWrite(c *oncrpc.Call, handle nfs3.FH) (*export.DataFile, error) {
	if !c.MayWait(export.VolumeIn(handle)) {
		return nil, errGone
	}
	f, err := s.opener.OpenData(c.Client.Addr(), handle, true)
	if err == nil {
		err = admit(c, f.Volume, f)
	}
	return f, err
}
