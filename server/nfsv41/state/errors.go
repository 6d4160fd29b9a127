package state

// Error is the outcome of a call: OK, or the error of RFC 8881 section 15.1 that
// has the same name. The caller turns it into the status on the wire, one to one.
type Error uint8

// The outcomes.
const (
	OK Error = iota

	// Sessions and clients.
	ErrBadSession
	ErrDeadSession // the client went while its request was being processed
	ErrBadSlot
	ErrBadHighSlot
	ErrSeqMisordered
	ErrSeqFalseRetry
	ErrRetryUncachedRep
	ErrReqTooBig
	ErrTooManyOps
	ErrTooSmall
	ErrStaleClientID
	ErrClidInUse
	ErrClientIDBusy
	ErrWrongCred
	ErrNotSame
	ErrPerm
	ErrNoEnt
	ErrCompleteAlready

	// State.
	ErrBadStateid
	ErrOldStateid
	ErrOpenMode
	ErrShareDenied
	ErrLocked // READ or WRITE without an open, against a share reservation
	ErrDenied
	ErrDeadlock
	ErrLocksHeld
	ErrGrace
	ErrNoGrace
	ErrReclaimConflict

	// All.
	ErrInval
	ErrDelay
	ErrNoSpc
	ErrServerFault

	// Later ones, as the numbers are handed over to the next process.
	ErrConnNotBound
	ErrRepTooBig
	ErrRepTooBigToCache

	numErrors
)

// NumErrors is one more than the largest Error, for tables.
const NumErrors = int(numErrors)

func (e Error) String() string {
	return [NumErrors]string{
		OK:                  "OK",
		ErrBadSession:       "BADSESSION",
		ErrDeadSession:      "DEADSESSION",
		ErrBadSlot:          "BADSLOT",
		ErrBadHighSlot:      "BAD_HIGH_SLOT",
		ErrSeqMisordered:    "SEQ_MISORDERED",
		ErrSeqFalseRetry:    "SEQ_FALSE_RETRY",
		ErrRetryUncachedRep: "RETRY_UNCACHED_REP",
		ErrReqTooBig:        "REQ_TOO_BIG",
		ErrTooManyOps:       "TOO_MANY_OPS",
		ErrTooSmall:         "TOOSMALL",
		ErrStaleClientID:    "STALE_CLIENTID",
		ErrClidInUse:        "CLID_INUSE",
		ErrClientIDBusy:     "CLIENTID_BUSY",
		ErrWrongCred:        "WRONG_CRED",
		ErrNotSame:          "NOT_SAME",
		ErrPerm:             "PERM",
		ErrNoEnt:            "NOENT",
		ErrCompleteAlready:  "COMPLETE_ALREADY",
		ErrBadStateid:       "BAD_STATEID",
		ErrOldStateid:       "OLD_STATEID",
		ErrOpenMode:         "OPENMODE",
		ErrShareDenied:      "SHARE_DENIED",
		ErrLocked:           "LOCKED",
		ErrDenied:           "DENIED",
		ErrDeadlock:         "DEADLOCK",
		ErrLocksHeld:        "LOCKS_HELD",
		ErrGrace:            "GRACE",
		ErrNoGrace:          "NO_GRACE",
		ErrReclaimConflict:  "RECLAIM_CONFLICT",
		ErrInval:            "INVAL",
		ErrDelay:            "DELAY",
		ErrNoSpc:            "NOSPC",
		ErrServerFault:      "SERVERFAULT",
		ErrConnNotBound:     "CONN_NOT_BOUND_TO_SESSION",
		ErrRepTooBig:        "REP_TOO_BIG",
		ErrRepTooBigToCache: "REP_TOO_BIG_TO_CACHE",
	}[e]
}
