package checkup

import (
	"time"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/provisioner/controller"
)

// sharedNames warns of each name that two nodes have.
func sharedNames(names []controller.SharedName) []doctor.Result {
	var found []doctor.Result
	for _, n := range names {
		found = append(found, doctor.Warn(
			"give the nodes different host names, or set nfs4_unique_id on them, and restart them: docs/troubleshooting.md, \"Two nodes with one name\"",
			"two nodes call themselves %q, so one can't mount while the other does, or each loses its open files and locks to the other: the one at %s, and the one at %s before it (last noticed at %s)",
			n.Name, n.Address, n.Other, n.Last.UTC().Format(time.RFC3339)))
	}
	if found == nil {
		found = []doctor.Result{doctor.Good("no two nodes have come with the same one in the last hour")}
	}
	return found
}
