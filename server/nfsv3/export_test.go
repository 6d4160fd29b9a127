package nfsv3

import (
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/oncrpc"
)

// ReplaysPerClient is how many replies are cached for a client.
const ReplaysPerClient = replaysPerClient

// NewRepeated returns a cache of replies for a procedure of a test, which counts its calls.
func NewRepeated() func(*oncrpc.Call) (rpc.AcceptStat, bool) { return newReplays().repeated }
