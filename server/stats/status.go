package stats

// Status is a call's status: one of NFS or MOUNT, or RPCError plus one of RPC.
type Status uint32

const (
	// RPCError is added to an accept_stat of RFC 5531.
	RPCError Status = 1 << 31
	// Other is for all statuses without a counter of their own.
	Other Status = 1<<32 - 1
)

// The statuses with counters of their own: those of NFS and MOUNT up to 99, those of
// NFS from 10001 on, and those of RPC.
const (
	plainMax  = 100
	highFirst = 10001
	highMax   = 8
	rpcMax    = 6
	slots     = plainMax + highMax + rpcMax + 1
	otherSlot = slots - 1
)

// slot is the index of a status's counter.
func (s Status) slot() int {
	switch {
	case s < plainMax:
		return int(s)
	case s >= highFirst && s < highFirst+highMax:
		return plainMax + int(s-highFirst)
	case s >= RPCError && s < RPCError+rpcMax:
		return plainMax + highMax + int(s-RPCError)
	}
	return otherSlot
}

// statusOf is the status of a slot.
func statusOf(slot int) Status {
	switch {
	case slot < plainMax:
		return Status(slot)
	case slot < plainMax+highMax:
		return highFirst + Status(slot-plainMax)
	case slot < otherSlot:
		return RPCError + Status(slot-plainMax-highMax)
	}
	return Other
}
