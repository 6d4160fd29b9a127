package checkup

import (
	"strings"
	"syscall"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/process"
	"github.com/podnas/podnas/quota"
)

func limits(p *process.Info) doctor.Result {
	if p.Enforced == quota.Off {
		return doctor.Warn("start podnas with --quota=auto, which selects the best quota that this disk supports", "sizes are not enforced, so any volume can fill the disk: %s", p.Quota)
	}
	return doctor.Good("%s", p.Quota)
}

// capabilities judges what the process may do on the disk, as it was tried at start. An ordinary user is not expected to have any.
func capabilities(p *process.Info) doctor.Result {
	if len(p.Adds) > 0 {
		return doctor.Warn("add "+strings.Join(p.Adds, ", ")+" to the container's securityContext.capabilities (deploy/base/statefulset.yaml), or run podnas as root",
			"%s", p.Rights)
	}
	return doctor.Good("%s", p.Rights)
}

func descriptors() doctor.Result {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return doctor.Warn("", "their limit is not known: %v", err)
	}
	return judgeDescriptors(limit.Cur)
}

func judgeDescriptors(limit uint64) doctor.Result {
	// A server with some hundred clients uses half of the limit for files (docs/limits.md); each client has a connection.
	const enough = 2048
	if limit < enough {
		return doctor.Warn("raise the limit of open files (ulimit -n, LimitNOFILE of the container runtime's service) and restart podnas",
			"it may open %d files and connections, %d are needed for many clients", limit, enough)
	}
	return doctor.Good("it may open %d files and connections", limit)
}
