package rpc

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"syscall"
)

// DialReserved connects from a privileged port, as the kernel's client does, if this
// process may: many servers require it.
func DialReserved(ctx context.Context, d net.Dialer, address string) (net.Conn, error) {
	const low, n, tries = 512, 512, 32
	first := rand.IntN(n)
	for i := range tries {
		d.LocalAddr = &net.TCPAddr{Port: low + (first+i)%n}
		nc, err := d.DialContext(ctx, "tcp", address)
		if taken := errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL); taken {
			continue
		}
		if !errors.Is(err, syscall.EACCES) {
			return nc, err
		}
		break // not privileged
	}
	d.LocalAddr = nil
	return d.DialContext(ctx, "tcp", address)
}
