//go:build attack

package attack_test

import "slices"

// attacks is the table.
func attacks() []attack {
	return slices.Concat(spaceAttacks, memoryAttacks, httpAttacks, timeAttacks, nameAttacks, handleAttacks, permissionAttacks, identityAttacks, fuzzAttacks, nfs4Attacks, state4Attacks, replay4Attacks, handle4Attacks, right4Attacks, range4Attacks, full4Attacks, killAttacks)
}
