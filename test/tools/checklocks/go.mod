// gVisor's checklocks, apart from the other tools because what it is built with is older than theirs. make locks
// runs it, from the top of the tree.
module github.com/podnas/podnas/test/tools/checklocks

go 1.26.3

tool gvisor.dev/gvisor/tools/checklocks/cmd/checklocks

require (
	golang.org/x/mod v0.34.0 // indirect
	golang.org/x/sync v0.20.0 // indirect
	golang.org/x/tools v0.43.0 // indirect
	gvisor.dev/gvisor v0.0.0-20260905035102-160fafc42237 // indirect
)
