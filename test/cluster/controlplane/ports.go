package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

type ports struct {
	etcdClient, etcdPeer, apiserver, controllerManager, scheduler int
}

func freePorts() (ports, error) {
	var p ports
	// Held until all are found, so that no two are the same.
	var held []net.Listener
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	for _, port := range []*int{&p.etcdClient, &p.etcdPeer, &p.apiserver, &p.controllerManager, &p.scheduler} {
		l, err := listenBelowEphemeral()
		if err != nil {
			return ports{}, err
		}
		held = append(held, l)
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return p, nil
}

// FreePort returns a port of 127.0.0.1 that nothing listens on and that no
// outgoing connection gets by chance.
func FreePort() (int, error) {
	l, err := listenBelowEphemeral()
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// listenBelowEphemeral listens on some free port that the kernel gives to no
// outgoing connection (those are 32768 and up, ip_local_port_range in ip(7)):
// one of them could take the API server's port while it is being restarted.
func listenBelowEphemeral() (net.Listener, error) {
	var last error
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000)))
		if err == nil {
			return l, nil
		}
		last = err
	}
	return nil, errors.Join(errors.New("find a free port"), last)
}
