package nfstest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// Target is a server under test.
type Target struct {
	Addr      string // of NFS, host:port
	MountAddr string // of MOUNT; empty: the same
	Export    string // path of the export, which must be writable for root

	// Dir is the exported directory on this machine. Tests that check the
	// disk are skipped if it is empty.
	Dir string

	// Lacks has the features that the server lacks, with the reason.
	Lacks map[Feature]string

	// Restart stops the server and starts it again with the same address and
	// state. Tests of restarts are skipped if it is nil.
	Restart func(t *testing.T)
}

// OwnAddress returns an address to listen on whose port stays free while the server
// restarts: this machine's outgoing connections take ports on 127.0.0.1.
func OwnAddress() string {
	n := rand.Uint32()
	return fmt.Sprintf("127.%d.%d.%d:0", 1+n%254, n>>8&0xff, 1+n>>16%254)
}

// Feature is something that a server may lack.
type Feature string

// The features that tests need.
const (
	FeatureExclusiveCreate  Feature = "exclusive create"   // CREATE EXCLUSIVE
	FeatureLink             Feature = "hard links"         // LINK, and its values in FSINFO and PATHCONF
	FeatureMknod            Feature = "mknod"              // fifos, sockets; devices for root
	FeatureDevices          Feature = "devices"            // MKNOD of devices by root
	FeatureIdentity         Feature = "identity"           // the caller's uid and gids decide, and own new files
	FeatureChown            Feature = "chown"              // root can give files away
	FeatureAccessTruth      Feature = "truthful access"    // ACCESS returns the caller's rights
	FeatureGuard            Feature = "setattr guard"      // SETATTR's guard is compared with the ctime
	FeatureModeBits         Feature = "mode bits"          // setuid, setgid and sticky; nothing above 07777
	FeatureTimes            Feature = "three times"        // atime, mtime and ctime are distinct
	FeatureNanoseconds      Feature = "nanoseconds"        // times are finer than a second
	FeatureSpaceUsed        Feature = "space used"         // used is the space on the disk, not the size
	FeatureWcc              Feature = "wcc data"           // complete weak cache consistency data
	FeatureOwnChanges       Feature = "own changes"        // wcc data has the call's own change, and no other
	FeatureErrorCodes       Feature = "error codes"        // the status that the RFC names, not just any
	FeatureRemoveByType     Feature = "remove by type"     // REMOVE leaves directories, RMDIR files
	FeatureHandleProof      Feature = "unforgeable handle" // a handle with any byte changed is refused
	FeatureCookies          Feature = "cookies"            // a listing can continue after any entry
	FeatureExactResults     Feature = "exact results"      // results have exactly the RFC's bytes
	FeatureDiskChanges      Feature = "changes on disk"    // direct changes on the disk show at once
	FeatureMountLists       Feature = "mount lists"        // EXPORT, DUMP and UMNTALL
	FeatureVersionMismatch  Feature = "version mismatch"   // RPC_MISMATCH and PROG_MISMATCH
	FeatureUnavail          Feature = "unavail"            // PROG_UNAVAIL and PROC_UNAVAIL
	FeatureGarbageArgs      Feature = "garbage args"       // GARBAGE_ARGS
	FeatureCredentialChecks Feature = "credential checks"  // a malformed credential is refused
	FeatureFragments        Feature = "fragments"          // records of several fragments
	FeatureACLs             Feature = "acls"               // NFSACL
	FeatureReplyCache       Feature = "reply cache"        // a repeated call gets the first reply
)

type test struct {
	name string
	run  func(e *env)
}

// Run runs the suite against a server. The tests run one after another, because a
// restart would affect the others.
func Run(t *testing.T, target Target) {
	if target.MountAddr == "" {
		target.MountAddr = target.Addr
	}
	for _, family := range []struct {
		name  string
		tests []test
	}{
		{"rpc", rpcTests},
		{"mount", mountTests},
		{"handles", handleTests},
		{"attributes", attrTests},
		{"lookup", lookupTests},
		{"identity", identityTests},
		{"io", ioTests},
		{"create", createTests},
		{"remove", removeTests},
		{"rename", renameTests},
		{"readdir", readdirTests},
		{"filesystem", fsTests},
		{"names", nameTests},
		{"symlinks", symlinkTests},
		{"acls", aclTests},
		{"concurrency", concurrencyTests},
	} {
		t.Run(family.name, func(t *testing.T) {
			for _, tt := range family.tests {
				t.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
					tt.run(newEnv(t, target))
				})
			}
		})
	}
}

// need skips the test if the target lacks a feature.
func (e *env) need(f Feature) {
	e.Helper()
	if reason, ok := e.target.Lacks[f]; ok {
		e.Skipf("named skip: %s: %s", f, reason)
	}
}

// needDisk skips the test without the exported directory.
func (e *env) needDisk() {
	e.Helper()
	if e.target.Dir == "" {
		e.Skip("named skip: disk: the exported directory can't be seen from here")
	}
}

// needRestart skips the test if the server can't be restarted.
func (e *env) needRestart() {
	e.Helper()
	if e.target.Restart == nil {
		e.Skip("named skip: restart: the server can't be restarted from here")
	}
}
