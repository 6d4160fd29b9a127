package provisioner

import (
	"context"
	"fmt"
	"net/netip"
)

// Address is where clients reach the server. A node mounts before any cluster
// DNS would help it, so it is an IP address and not a name.
type Address struct {
	IP   netip.Addr
	Port uint16 // NFS and MOUNT
}

// Endpoint knows where clients reach the server.
type Endpoint interface {
	// Address is asked for each new volume. Its error is shown to the user.
	Address(context.Context) (Address, error)
}

// StaticEndpoint is an address that was given by hand.
type StaticEndpoint Address

// ParseStaticEndpoint reads an IPv4 or IPv6 address.
func ParseStaticEndpoint(ip string, port uint16) (StaticEndpoint, error) {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return StaticEndpoint{}, fmt.Errorf("server address %q is not an IPv4 or IPv6 address: use an address, because nodes may be unable to resolve names", ip)
	}
	return StaticEndpoint{IP: addr.Unmap(), Port: port}, nil
}

// Address returns the address.
func (e StaticEndpoint) Address(context.Context) (Address, error) { return Address(e), nil }
