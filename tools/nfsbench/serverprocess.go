package nfsbench

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// peerProcess returns the process that has the other end of a connection, if it runs here and
// may be seen: by root, and by the user that it runs as. A server in the kernel has no process.
func peerProcess(local, remote net.Addr) (pid int, ok bool) {
	here, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return 0, false
	}
	there, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return 0, false
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if inode, ok := findSocket(table, plain(there), plain(here)); ok {
			return findOwner(fmt.Sprintf("socket:[%s]", inode))
		}
	}
	return 0, false
}

// plain returns an address without what depends on how it was written.
func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// findSocket looks for a socket with these two ends in one of the kernel's tables, see proc_net_tcp.rst
// in its documentation.
func findSocket(table string, local, remote netip.AddrPort) (inode string, ok bool) {
	file, err := os.Open(table)
	if err != nil {
		return "", false
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 {
			continue
		}
		l, err := parseSocketEnd(fields[1])
		if err != nil || l != local {
			continue // a heading, or another socket
		}
		if r, err := parseSocketEnd(fields[2]); err == nil && r == remote {
			return fields[9], true
		}
	}
	return "", false
}

// parseSocketEnd parses an address and a port in hexadecimal. An address is made of words of 32 bits
// in the byte order of this machine.
func parseSocketEnd(s string) (netip.AddrPort, error) {
	address, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for word := b; len(word) >= 4; word = word[4:] {
		binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
	}
	a, ok := netip.AddrFromSlice(b)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("%q is no address", address)
	}
	n, err := strconv.ParseUint(port, 16, 16)
	return plain(netip.AddrPortFrom(a, uint16(n))), err
}

// findOwner returns a process that has a file open with this name in /proc/PID/fd.
func findOwner(name string) (pid int, ok bool) {
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is right
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && to == name {
			pid, err := strconv.Atoi(strings.Split(file, "/")[2])
			return pid, err == nil
		}
	}
	return 0, false
}
