package active

import (
	"fmt"
	"time"

	"github.com/podnas/podnas/internal/doctor"
)

// patience is for what the next moments will do: a standby takes about as long to start.
const patience = time.Minute

// HasStandby reports whether another podnas could take over, as of the last look at the pods.
func (a *Active) HasStandby() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state.standby != ""
}

// CutOff returns why clients do not find this podnas although it serves, if that has been so for a minute, and a standby could serve
// them: its kubelet has died, as a rule, so Kubernetes takes its pod for unready, or for one that has ended.
func (a *Active) CutOff() error {
	a.mu.Lock()
	s := a.state
	a.mu.Unlock()
	if s.labelErr != nil || s.renewErr != nil || s.unready == "" || s.standby == "" || time.Since(s.unreadySince) < patience {
		return nil
	}
	return fmt.Errorf("for Kubernetes, since %s, %s, so no new connection is led to it, while pod %s could serve: look at the kubelet of that node",
		s.unreadySince.UTC().Format(time.RFC3339), s.unready, s.standby)
}

// Findings says what keeps clients from this podnas, or another one from taking over.
func (a *Active) Findings() []doctor.Result {
	a.mu.Lock()
	s := a.state
	a.mu.Unlock()
	var found []doctor.Result
	if s.renewErr != nil {
		found = append(found, doctor.Warn("make sure that podnas's pod can reach the API server, and that deploy/components/ha is applied",
			"the Lease %s can't be renewed, so a standby may take podnas for dead: %v", a.leaseName(), explain(s.renewErr)))
	}
	if s.unready != "" && time.Since(s.unreadySince) >= patience {
		found = append(found, doctor.Fail("look at the kubelet and the container runtime of that node, and at its disk. With a standby that is ready podnas ends, so that the standby serves",
			"this podnas serves, but for Kubernetes, since %s, %s: no new connection is led to it", s.unreadySince.UTC().Format(time.RFC3339), s.unready))
	}
	switch {
	case s.labelErr != nil:
		return append(found, doctor.Fail("apply deploy/components/ha, whose Role lets podnas get, list and patch pods in its namespace. Until then by hand: 'kubectl -n "+a.Namespace+" label --overwrite pod "+a.Pod+" "+RoleLabel+"="+RoleActive+"', and "+RoleLabel+"="+RoleStandby+" for the others",
			"the Service may lead to another pod, or to none: %v", explain(s.labelErr)))
	case !s.served && time.Since(s.since) < patience:
		return append(found, doctor.Good("podnas has begun to serve just now"))
	case !s.served:
		return append(found, doctor.Warn("make sure that podnas's pod can reach the API server", "it is not known yet whether the Service leads to this pod"))
	case s.standby != "":
		return append(found, doctor.Good("pod %s takes over if this one dies", s.standby))
	case time.Since(s.since) < patience:
		return append(found, doctor.Good("there has been no standby for %s: %s", time.Since(s.since).Round(time.Second), s.waits))
	}
	return append(found, doctor.Warn("'kubectl podnas doctor pod' says more. If a node is dead: 'kubectl podnas failover NODE', so that its pod starts elsewhere",
		"nobody takes over if this podnas dies, since %s: %s", s.since.UTC().Format(time.RFC3339), s.waits))
}
