package stats

// Status is how a call ended: a status of NFS or MOUNT, or RPCError and a status
// of RPC.
type Status uint32

const (
	// RPCError is added to what RFC 5531 calls accept_stat.
	RPCError Status = 1 << 31
	// Other stands for all that have no number of their own.
	Other Status = 1<<32 - 1
)

// The statuses that are counted each by itself: those of NFS and MOUNT up to 99, those
// of NFS from 10001 on, and those of RPC.
const (
	plainMax   = 100
	highFirst  = 10001
	highMax    = 8
	rpcMax     = 6
	slots      = plainMax + highMax + rpcMax + 1
	otherPlace = slots - 1
)

// slot is where a status is counted.
func (s Status) slot() int {
	switch {
	case s < plainMax:
		return int(s)
	case s >= highFirst && s < highFirst+highMax:
		return plainMax + int(s-highFirst)
	case s >= RPCError && s < RPCError+rpcMax:
		return plainMax + highMax + int(s-RPCError)
	}
	return otherPlace
}

// statusOf is the status that is counted at a place.
func statusOf(slot int) Status {
	switch {
	case slot < plainMax:
		return Status(slot)
	case slot < plainMax+highMax:
		return highFirst + Status(slot-plainMax)
	case slot < otherPlace:
		return RPCError + Status(slot-plainMax-highMax)
	}
	return Other
}
