//go:build vm

package vm_test

import (
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
)

// version41 reports whether this run mounts volumes with NFS version 4.1 (NFS=4.1). It is
// with version 3 otherwise.
func version41() bool { return os.Getenv("NFS") == "4.1" }

// version3Options mount a volume with version 3 in a run with 4.1.
func version3Options() []string {
	return []string{"nfsvers=3", "proto=tcp", "port=20490", "mountport=20490", "mountproto=tcp", "nolock"}
}

// Why a test is left out of a run with version 4.1.
const (
	about3     = "it is about the mount options or the protocol of version 3"
	noProtocol = "the protocol has no part in what it tests"
)

// notWith41 are the tests that a run with version 4.1 leaves out.
var notWith41 = map[string]string{
	"TestMountOptions":            about3,
	"TestNoRpcbind":               about3,
	"TestPrintedMountCommand":     about3,
	"TestDoctorMount":             about3,
	"TestSeveralVolumes":          noProtocol,
	"TestDelete":                  noProtocol,
	"TestDeleteWhileDown":         noProtocol,
	"TestRetain":                  noProtocol,
	"TestTooLarge":                noProtocol,
	"TestForeignPaths":            noProtocol,
	"TestDiskImage":               noProtocol,
	"TestDiskImageDamaged":        noProtocol,
	"TestDiskImagePowerCut":       noProtocol,
	"TestDiskImageInAPod":         noProtocol,
	"TestDiskImageMadeWhole":      noProtocol,
	"TestDiskImageForeign":        noProtocol,
	"TestDiskImageSpace":          noProtocol,
	"TestInodesTakenOver":         noProtocol,
	"TestNameIsOnTheDisk":         noProtocol,
	"TestSize":                    noProtocol,
	"TestQuotaRefused":            noProtocol,
	"TestQuotaAuto":               noProtocol,
	"TestQuotaTurnedOn":           noProtocol,
	"TestServerCounts":            noProtocol,
	"TestRaisedClaim":             noProtocol,
	"TestOneDiskTwoAppliances":    noProtocol,
	"TestRestoredWithoutProjects": noProtocol,
	"TestOrdinaryUser":            "version 4.1 is served by the native engine alone, which takes root",
}

// only41 are the tests that a run with version 3 leaves out.
var only41 = map[string]string{
	"TestBothVersions":       "both versions of one volume",
	"TestTwoNodes":           "locks between nodes",
	"TestTwoGuests":          "locks between nodes",
	"TestNodeCutOff":         "leases",
	"TestKillUnderLocks":     "locks that are reclaimed",
	"TestRestartUnderLocks":  "locks that are handed over",
	"TestChaos":              "locks between nodes",
	"TestCutAtAnyFlush":      "clients with state, and both versions at once",
	"TestFaultyDiskTwoNodes": "two nodes",
	"TestRemovedWhileOpen":   "files without a name",
	"TestTwoNodesOfOneName":  "the names of clients, which have leases",
	"TestThroughService":     "with version 3 Linux gives up after minutes what it gives up after a lease with 4.1",
	"TestDieUnderLocks":      "locks that a log keeps",
	"TestFinderChanges":      "with version 3 Linux has two files then: docs/upgrading.md",
}

// once are the tests that make vm runs with version 3 alone, so that it takes no longer than it
// may; make vm NFS=4.1 runs them.
var once = map[string]string{
	"TestBuild":            "what it does is in TestGit and TestProcesses, too",
	"TestManyFiles":        "both versions list a directory by the same code, and TestFiles lists one with many entries",
	"TestInodeLimit":       "the limit is checked below the protocol, and TestFullByEachCall has each call's error",
	"TestFaultyDiskUnseen": "what the kernel tells of a failed write, and when, is asked below the protocol",
}

// leaveOut takes the tests of the other version out of this run.
func leaveOut() {
	other := maps.Clone(only41)
	if version41() {
		other = maps.Clone(notWith41)
		if os.Getenv("NFS_ONCE") != "" {
			maps.Copy(other, once)
		}
	}
	flag.Parse()
	names := strings.Join(slices.Sorted(maps.Keys(other)), "|")
	skip := flag.Lookup("test.skip")
	all := "^(" + names + ")$"
	if had := skip.Value.String(); had != "" {
		all += "|" + had
	}
	if err := skip.Value.Set(all); err != nil {
		panic(err)
	}
}
