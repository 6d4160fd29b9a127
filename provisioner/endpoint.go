package provisioner

import (
	"context"
	"fmt"
	"net/netip"
)

// Address is where clients connect to the server. It is an IP address and not a
// name, because nodes do not use the cluster's DNS.
type Address struct {
	IP   netip.Addr
	Port uint16 // NFS and MOUNT
}

// Endpoint returns where clients connect to the server.
type Endpoint interface {
	// Address is called for each new volume. Its error is shown to the user.
	Address(context.Context) (Address, error)
}

// StaticEndpoint is a configured address.
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
