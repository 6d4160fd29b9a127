package main

// expectation is a kind of tests that need not run where CI is set.
type expectation struct {
	test string // a regular expression of their names
	says string // and of the reason that they give
}

// expected is short: a test that can't run where CI runs has no use. What is here runs
// elsewhere in CI, or can't be right for what it is run against.
func expected() []expectation {
	return []expectation{
		// For a server that runs already, which a person names.
		{`^TestExternal$`, `^named skip: external: `},
		// NFS-Ganesha, which nothing starts again in the middle of the suite.
		{`^TestExternal/`, `^named skip: restart: `},
		// The kernel's server, which has one set of options for a directory.
		{`^TestExternal/exports/`, `^named skip: options: `},
		{`^TestExternal/failed-creates/`, `^named skip: open: `}, // nor is its bound of opens known
		// A process of another test, which starts it.
		{`^TestKilledServer$`, `^it runs as a child of TestKilled$`},
		{`^TestRightsOfChild$`, `^it runs as a child of TestTryRights$`},
		{`^TestKernelHandlesOfChild$`, `^it runs as a child of TestKernelHandlesDenied$`},
		// It has no handles of the kernel, and what has a whole second has no finer times.
		{`^TestFileSystems/overlayfs(_on_two)?/kernel$`, `no file handles`},
		{`^TestFileSystems/ext4_without_birth_times/`, `^named skip: nanoseconds: `},
		// It shares no blocks. TestRanges4 and those of server/inode have XFS and btrfs beside it, which do.
		{`^Test(NativeConformance4|WaysToFindFiles|Conformance4Switches)/`, `^named skip: CLONE: `}, // in memory
		{`^TestRanges4/(ext4|here)/`, `^named skip: CLONE: `},
		{`/(ext4|here)$`, `^the file system shares no blocks$`},
		// The engine can't do it, and its table of what it lacks says so.
		{`^TestConformance/`, `^named skip: .*\bgo-nfs\b`},
		// For a disk or a kernel that the guest of make vm has, where they fail without it.
		{``, "`make vm` runs this test$"},
		// What make vm has without SHORT, each night.
		{``, `^left out by SHORT=1: `},
		// make vm has a run for each engine.
		{``, `^not for (go-nfs|native): `},
	}
}
