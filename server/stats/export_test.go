package stats

// Bounds that tests reach.
const (
	Buckets      = buckets
	ClientForget = clientForget
	ClientShown  = clientShown
	ClientsMax   = clientsMax
	SeenEvery    = seenEvery
	SlowBurst    = slowBurst
)

// Slots is how many statuses are counted one by one; StatusOf and SlotOf are which.
const Slots = slots

// StatusOf returns the status that is counted in a slot.
func StatusOf(slot int) Status { return statusOf(slot) }

// SlotOf returns the slot of a status.
func SlotOf(s Status) int { return s.slot() }
