//go:build linux

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// server is one on this machine.
type server struct {
	name, port, mountPort string
	export                string // as clients call it
	local                 string // the same directory on the disk
	version               string // of NFS: 3, 4.1 or 4.2
}

func newServer(arg string) (*server, error) {
	f := strings.Split(arg, ",")
	if len(f) != 6 || !slices.Contains([]string{"3", "4.1", "4.2"}, f[5]) {
		return nil, fmt.Errorf("%q: a server is NAME,PORT,MOUNTPORT,EXPORT,DIRECTORY,VERSION, and VERSION is 3, 4.1 or 4.2", arg)
	}
	return &server{f[0], f[1], f[2], f[3], f[4], f[5]}, nil
}

// mount mounts the export on a new directory, as mount.nfs would, without the time
// that starting it takes in a guest. The options are what a volume's
// PersistentVolume has; noresvport, since mounting often would use the privileged
// ports up.
func (s *server) mount() (string, error) {
	at, err := os.MkdirTemp("", "mount-"+s.name+"-")
	if err != nil {
		return "", err
	}
	kind, options := "nfs4", "vers="+s.version+",clientaddr=127.0.0.1"
	if s.version == "3" {
		kind, options = "nfs", "vers=3,nolock,mountaddr=127.0.0.1,mountvers=3,mountproto=tcp,mountport="+s.mountPort
	}
	options += ",proto=tcp,noresvport,addr=127.0.0.1,port=" + s.port
	if err := unix.Mount("127.0.0.1:"+s.export, at, kind, unix.MS_NOATIME, options); err != nil {
		_ = os.Remove(at) // empty
		return "", fmt.Errorf("mount %s with %s: %w", s.export, options, err)
	}
	return at, nil
}

func (s *server) unmount(at string) error {
	if err := unix.Unmount(at, 0); err != nil {
		return fmt.Errorf("unmount %s: %w", at, err)
	}
	return os.Remove(at)
}
