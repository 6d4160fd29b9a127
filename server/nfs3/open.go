package nfs3

import (
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
)

// The files of a call's handles are opened here, where it turns out whose call it
// is: the volume's, which it is counted for.

func (s *service) open(c *oncrpc.Call, handle FH) (*export.File, error) {
	f, err := s.opener.Open(c.Client.Addr(), handle)
	if err == nil {
		c.Served.Volume = &f.Volume.Served
	}
	return f, err
}

func (s *service) openDir(c *oncrpc.Call, handle FH) (*export.File, error) {
	f, err := s.opener.OpenDir(c.Client.Addr(), handle)
	if err == nil {
		c.Served.Volume = &f.Volume.Served
	}
	return f, err
}

func (s *service) openData(c *oncrpc.Call, handle FH, write bool) (*export.DataFile, error) {
	f, err := s.opener.OpenData(c.Client.Addr(), handle, write)
	if err == nil {
		c.Served.Volume = &f.Volume.Served
	}
	return f, err
}
