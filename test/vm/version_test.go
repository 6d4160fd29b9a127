//go:build vm

package vm_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// version4 reports whether this run mounts volumes with NFS version 4.2, the default, or 4.1 (NFS=4.2, NFS=4.1). It is
// with version 3 otherwise.
func version4() bool { return strings.HasPrefix(os.Getenv("NFS"), "4.") }

// version3Options mount a volume with version 3 in a run with version 4.
func version3Options() []string {
	return []string{"nfsvers=3", "proto=tcp", "port=20490", "mountport=20490", "mountproto=tcp", "nolock"}
}

// Why a test is left out of a run with version 4.
const (
	about3     = "it is about the mount options or the protocol of version 3"
	noProtocol = "the protocol has no part in what it tests"
)

// notWith4 are the tests that a run with version 4 leaves out.
var notWith4 = map[string]string{
	"TestMountOptions":            about3,
	"TestNoRpcbind":               about3,
	"TestPrintedMountCommand":     about3,
	"TestDoctorMount":             about3,
	"TestACLs":                    "NFSACL is of version 3",
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
	"TestSharedDiskRefused":       noProtocol,
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
	"TestOrdinaryUser":            "version 4 is served by the native engine alone, which takes root",
}

// only4 are the tests that a run with version 3 leaves out.
var only4 = map[string]string{
	"TestBothVersions":       "both versions of one volume",
	"TestTwoNodes":           "locks between nodes",
	"TestTwoGuests":          "locks between nodes",
	"TestNodeCutOff":         "leases",
	"TestKillUnderLocks":     "locks that are reclaimed",
	"TestRestartUnderLocks":  "locks that are handed over",
	"TestMoveUnderLocks":     "locks that are handed over",
	"TestChaos":              "locks between nodes",
	"TestFailovers":          "locks between nodes",
	"TestCutAtAnyFlush":      "clients with state, and both versions at once",
	"TestFaultyDiskTwoNodes": "two nodes",
	"TestRemovedWhileOpen":   "files without a name",
	"TestNodeWithBothMinors": "both minor versions of one node",
	"TestTwoNodesOfOneName":  "the names of clients, which have leases",
	"TestNodeReaddressed":    "locks that a node keeps",
	"TestThroughService":     "with version 3 Linux gives up after minutes what it gives up after a lease with version 4",
	"TestDieUnderLocks":      "locks that a log keeps",
	"TestVersion42":          "programs on a mount of version 4.2",
	"TestTwoMounts42":        "two mounts of version 4.2",
	"TestACLs4":              "nfs4-acl-tools are for version 4",
	"TestBirth":              "version 3 has no time of birth",
	"TestXattrs":             "version 3 has no extended attributes",
	"TestXattrsTwoNodes":     "version 3 has no extended attributes",
	"TestSAN":                "version 3 is in it, too",
	"TestDRBD":               "version 3 is in it, too",
	"TestFinderChanges":      "its locks are between two nodes of version 4",
}

// short reports whether this is the run of each change (SHORT=1), which leaves out what
// follows here. All of it runs each night and before a release.
func short() bool { return os.Getenv("SHORT") != "" }

// notInShortRun passes a case over in a short run.
func notInShortRun(t *testing.T, why string) {
	t.Helper()
	if short() {
		t.Skipf("left out by SHORT=1: %s", why)
	}
}

const (
	alsoIn4     = "version 4 has it in a short run, too, and the protocol has little part in it"
	belowEngine = "the native engine has it in a short run, too, and the engine has little part in it"
)

// notInShort are the tests that a short run leaves out, with either version.
var notInShort = map[string]string{
	"TestBuild":             "what it does is in TestGit and TestProcesses, too",
	"TestManyFiles":         "TestFiles lists a directory with many entries",
	"TestDiskImageForeign":  "what is refused is told below the kernel, by TestInspect of internal/volume/diskimage",
	"TestFaultyDiskUnseen":  "what the kernel tells of a failed write is asked on this machine's own kernel, by TestSyncFails",
	"TestSharedDiskRefused": "what is refused is told below the kernel, by TestRead of internal/volume/shareddisk",
}

// notInShort3 are those that it leaves out with version 3, notInShort4 those with version 4, and
// notInShortGoNFS those of the other engine.
var (
	notInShort3 = map[string]string{
		"TestDefaultACL":          alsoIn4,
		"TestEvictNode":           alsoIn4,
		"TestExecute":             alsoIn4,
		"TestFaultyDisk":          alsoIn4,
		"TestFullByEachCall":      alsoIn4,
		"TestFullVolume":          alsoIn4,
		"TestGit":                 alsoIn4,
		"TestIPv6":                alsoIn4,
		"TestKillUnderCopies":     alsoIn4,
		"TestKillUnderLoad":       alsoIn4,
		"TestClassWithoutVersion": alsoIn4,
		"TestMountWithoutVersion": alsoIn4,
		"TestMountedRoot":         alsoIn4,
		"TestNothingLeft":         alsoIn4,
		"TestOpenBeforeChmod":     alsoIn4,
		"TestPowerCut":            alsoIn4,
		"TestPowerCutNames":       alsoIn4,
		"TestProcesses":           alsoIn4,
		"TestRandomOperations":    alsoIn4,
		"TestScheduledSnapshots":  alsoIn4,
		"TestSnapshots":           alsoIn4,
		"TestSQLite":              alsoIn4,
		"TestStalledLookup":       alsoIn4,
		"TestTwoMounts":           alsoIn4,
	}
	notInShort4     = map[string]string{"TestInodeLimit": "the limit is checked below the protocol, and version 3 has it"}
	notInShortGoNFS = map[string]string{
		"TestDelete":           belowEngine,
		"TestDoctorMount":      belowEngine,
		"TestForeignPaths":     belowEngine,
		"TestFullByEachCall":   belowEngine,
		"TestPowerCut":         belowEngine,
		"TestRandomOperations": belowEngine,
		"TestRestart":          belowEngine,
		"TestServerCounts":     belowEngine,
		"TestSize":             belowEngine,
		"TestSQLite":           belowEngine,
	}
)

// leaveOut takes the tests of the other version out of this run, and those that a short one has not.
func leaveOut() {
	other := maps.Clone(only4)
	if version4() {
		other = maps.Clone(notWith4)
	}
	if short() {
		brief := maps.Clone(notInShort)
		switch {
		case version4():
			maps.Copy(brief, notInShort4)
		case os.Getenv("ENGINE") == "native":
			maps.Copy(brief, notInShort3)
		default:
			maps.Copy(brief, notInShortGoNFS)
		}
		fmt.Printf("SHORT=1 leaves out %s (version_test.go says why)\n", strings.Join(slices.Sorted(maps.Keys(brief)), ", "))
		maps.Copy(other, brief)
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
