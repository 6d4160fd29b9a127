package nfsbench

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// defaultPort is the default port of NFS and MOUNT.
const defaultPort = 2049

// Target is an export of a server.
type Target struct {
	Host      string
	Port      uint16 // of NFS
	MountPort uint16 // of MOUNT, for version 3
	Path      string
	Version   Version
}

// ParseTarget parses HOST[:PORT]:/path, with an IPv6 address in brackets. If 0,
// port defaults to 2049, and mountPort to the port of NFS.
func ParseTarget(s string, port, mountPort uint16) (Target, error) {
	at := strings.Index(s, ":/")
	if at < 0 {
		return Target{}, fmt.Errorf("%q is not HOST:/path, such as nas.example.com:/export", s)
	}
	t := Target{Host: s[:at], Port: port, MountPort: mountPort, Path: s[at+1:]}
	bracketed := strings.HasPrefix(t.Host, "[")
	colons := strings.Count(t.Host, ":")
	switch {
	case bracketed && strings.HasSuffix(t.Host, "]"):
		t.Host = t.Host[1 : len(t.Host)-1]
	case bracketed || colons == 1:
		host, given, err := net.SplitHostPort(t.Host)
		if err != nil {
			return Target{}, fmt.Errorf("%q: %w", s, err)
		}
		n, err := strconv.ParseUint(given, 10, 16)
		if err != nil || n == 0 {
			return Target{}, fmt.Errorf("%q: %q is not a port", s, given)
		}
		if port != 0 && n != uint64(port) {
			return Target{}, fmt.Errorf("%q names port %d, and --port another", s, n)
		}
		t.Host, t.Port = host, uint16(n)
	case colons > 1:
		return Target{}, fmt.Errorf("%q: write an IPv6 address in brackets, such as [2001:db8::1]:/export", s)
	}
	if t.Host == "" {
		return Target{}, fmt.Errorf("%q has no host", s)
	}
	if t.Port == 0 {
		t.Port = defaultPort
	}
	if t.MountPort == 0 {
		t.MountPort = t.Port
	}
	return t, nil
}

// String returns the target as ParseTarget reads it.
func (t Target) String() string {
	if t.Port != defaultPort {
		return t.address(t.Port) + ":" + t.Path
	}
	if strings.Contains(t.Host, ":") {
		return "[" + t.Host + "]:" + t.Path
	}
	return t.Host + ":" + t.Path
}

func (t Target) address(port uint16) string {
	return net.JoinHostPort(t.Host, strconv.Itoa(int(port)))
}
