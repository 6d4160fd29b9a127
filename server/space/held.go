package space

// Held is what calls hold of an account at a moment. Only tests use it: those of
// server/inode show that calls return everything that they reserve.
type Held struct {
	Charges  int    // in use, or to be looked at again
	Reserved Amount // zero if there is no Reservation
	Again    bool   // the scan, which has not ended, needs another pass
}

// Held returns what calls hold of the account.
func (a *Account) Held() Held {
	a.mu.Lock()
	defer a.mu.Unlock()
	reserved := a.taken.load().minus(a.used.load()).minus(a.unseen)
	return Held{len(a.charges), reserved, a.again.Load()}
}
