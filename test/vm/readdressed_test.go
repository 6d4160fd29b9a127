//go:build vm

package vm_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNodeReaddressed: while podnas is away a node gets another address, as with a new lease of DHCP. It goes on with what it has
// open and locked, whether podnas was restarted, or has died with a log of the clients' state or without one: from another address
// Linux shows by its verifier that it is the same.
func TestNodeReaddressed(t *testing.T) {
	for _, tt := range []struct {
		name string
		log  bool
		end  func(*appliance)
	}{
		{"podnas is restarted", false, (*appliance).stop},
		{"podnas dies, and has a log", true, (*appliance).kill},
		{"podnas dies", false, (*appliance).kill},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := settings{}
			if tt.log {
				s.stateLog = t.TempDir()
			}
			a, _, nodes := twoNodesOf(t, s)
			mine, theirs := nodes[0].open(t, "lock", os.O_RDWR|os.O_CREATE), nodes[1].open(t, "lock", os.O_RDWR)
			wants(t, "lock", lock(mine, unix.F_WRLCK, 0, 0), nil)
			tt.end(a)
			v := nodes[0]
			v.must(func() error {
				v.ip("addr del 10.77.1.2/24 dev node1")
				v.ip("addr add 10.77.1.3/24 dev node1")
				return nil
			})
			a.start()
			within(t, time.Minute, "a write under the lock", func() error {
				_, err := mine.WriteAt([]byte("mine"), 0)
				return errors.Join(err, mine.Sync())
			})
			if out, _ := run(t, "client", "list", "--root="+a.root); !strings.Contains(out, "10.77.1.3:") {
				t.Errorf("podnas client list says\n%s", out)
			}
			wants(t, "the other's lock", lock(theirs, unix.F_WRLCK, 0, 0), syscall.EAGAIN)
			wants(t, "unlock", lock(mine, unix.F_UNLCK, 0, 0), nil)
			wants(t, "the other's lock", lock(theirs, unix.F_WRLCK, 0, 0), nil)
		})
	}
}
