package nfsv41

import (
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
)

// The verifier of an exclusive OPEN is the same when a client sends it again, whichever process serves it, and
// another for each client.
func TestVerifierBy(t *testing.T) {
	verf := nfs4.Verifier{0, 0, 1, 44, 0, 0, 3, 9}
	by := verifierBy("Linux NFSv4.1 node0", verf)
	if verifierBy("Linux NFSv4.1 node0", verf) != by {
		t.Error("another when it is sent again")
	}
	if verifierBy("Linux NFSv4.1 node1", verf) == by {
		t.Error("the same for another client")
	}
	verf[7]++
	if verifierBy("Linux NFSv4.1 node0", verf) == by {
		t.Error("the same for another file")
	}
}
