package nfstest4

import (
	"strings"
	"testing"

	"github.com/podnas/podnas/test/conformance/nfstest"
)

// Target is a server under test.
type Target struct {
	Addr   string // host:port
	Export string // path of the export from the pseudo root, which must be writable for root

	// Minor is the minor version that all calls have, 1 or 2; 0: 1.
	Minor uint32

	// Other is the path of another volume on the same disk, which must be writable for root. Empty: there is none.
	Other string
	// OtherDisk is the path of a volume on another disk, which must be writable for root. Empty: there is none.
	OtherDisk string

	// Hidden is the path of a volume that this machine may not mount. Empty: there is none.
	Hidden string

	// ReadOnly and Squashed are paths of volumes with the same files as Export: in one nothing
	// may be changed, in the other everybody is the user SquashUID. Limited is the path of one
	// that only the address LimitedTo of this machine may use. Empty: there is none.
	ReadOnly, Squashed, Limited string
	SquashUID                   uint32
	LimitedTo                   string

	// Opens is how many opens a client may have at most, some hundreds; 0: that is not known.
	Opens int

	// Lacks has the features that the server lacks, with the reason: FeatureIdentity, FeatureChown, FeatureDevices.
	Lacks map[nfstest.Feature]string

	// MountAddr is the address of MOUNT version 3, for tests that compare with NFSv3.
	// They are skipped if it is empty.
	MountAddr string

	// Restart has the server start again as after a crash, with the same address and what is
	// on its disk. Tests of restarts are skipped if it is nil.
	Restart func(t *testing.T)
	// Handover has the server end and start again, such that it goes on with what clients have.
	// Tests of that are skipped if it is nil: few servers can.
	Handover func(t *testing.T)
	// Die has the server start again as after the end of its process alone, such that it goes on
	// with what clients have open and locked, and has no session. Tests of that are skipped if
	// it is nil.
	Die func(t *testing.T)
}

type test struct {
	name string
	run  func(e *env)
}

// RunRanges runs what is new in version 4.2 against a server.
func RunRanges(t *testing.T, target Target) { runTests(t, target, rangeTests, "") }

// RunXattrs runs the tests of extended attributes against a server.
func RunXattrs(t *testing.T, target Target) { runTests(t, target, xattrTests, "") }

// RunACLs runs the tests of ACLs against a server.
func RunACLs(t *testing.T, target Target) { runTests(t, target, aclTests, "") }

// Run runs the suite against a server. The tests run one after another, because a
// restart would affect the others.
func Run(t *testing.T, target Target) {
	nothing := ""
	if target.Handover == nil {
		nothing = "named skip: restart: the server hands nothing over"
	}
	dies := ""
	if target.Die == nil {
		dies = "named skip: restart: the server has nothing when its process has died"
	}
	for _, family := range []struct {
		name  string
		tests []test
		skip  string // why
	}{
		{"compound", compoundTests, ""},
		{"clients", clientTests, ""},
		{"sessions", sessionTests, ""},
		{"slots", slotTests, ""},
		{"handles", handleTests, ""},
		{"attributes", attrTests, ""},
		{"open", openTests, ""},
		{"failed creates", failedTests, ""},
		{"locks", lockTests, ""},
		{"callbacks", callbackTests, ""},
		{"names", nameTests, ""},
		{"types", typeTests, ""},
		{"details", detailTests, ""},
		{"ranges", rangeTests, ""},
		{"extended attributes", xattrTests, ""},
		{"acls", aclTests, ""},
		{"exports", exportTests, ""},
		{"restarts", restartTests, ""},
		{"handover", handoverTests, nothing},
		{"died", diedTests, dies},
	} {
		t.Run(strings.ReplaceAll(family.name, " ", "-"), func(t *testing.T) {
			runTests(t, target, family.tests, family.skip)
		})
	}
}

func runTests(t *testing.T, target Target, tests []test, skip string) {
	t.Helper()
	for _, tt := range tests {
		t.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			if skip != "" {
				t.Skip(skip)
			}
			tt.run(newEnv(t, target))
		})
	}
}
