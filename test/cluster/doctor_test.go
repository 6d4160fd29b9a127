//go:build cluster

package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/provisioner/controller"
)

// run runs one of podnas's commands against the running instance.
func (p *podnas) run(args ...string) (stdout, stderr string, code int) {
	p.t.Helper()
	cmd := exec.Command(cluster.podnas, append(args, "--root="+p.root)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// doctor returns what podnas doctor has found, and its exit code.
func (p *podnas) doctor() ([]doctor.Result, int) {
	p.t.Helper()
	out, errs, code := p.run("doctor", "-o", "json")
	var report control.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		p.t.Fatalf("%v in %q; %s", err, out, errs)
	}
	// How full this machine's disk is, is not podnas's.
	return slices.DeleteFunc(report.Checks, func(r doctor.Result) bool { return r.Check == "space" }), code
}

// found tells whether a result is among others.
func found(results []doctor.Result, check string, status doctor.Status, says string) bool {
	for _, r := range results {
		if r.Check == check && r.Status == status && strings.Contains(r.Says, says) && (status == doctor.OK || r.Fix != "") {
			return true
		}
	}
	return false
}

// podnas doctor, against an API server: all well, then each thing broken that a
// cluster can break.
func TestDoctor(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner)
	p.env = []string{"SERVICE_NAME=" + podnasName, "POD_NAMESPACE=" + podnasNamespace, "POD_NAME=podnas-0", "POD_IP=" + podIP}
	nfs := corev1.ServicePort{Name: "nfs", Port: servicePort, TargetPort: intstr.FromInt(p.port)}
	good := &corev1.ServiceSpec{Ports: []corev1.ServicePort{nfs}}
	setService(t, good, podIP, p.port)
	p.start()
	eventually := func(what string, check string, status doctor.Status, says string) {
		t.Helper()
		var last []doctor.Result
		eventually(t, time.Minute, what, func() bool {
			last, _ = p.doctor()
			return found(last, check, status, says)
		})
		for _, r := range last {
			if r.Check == check && r.Status != doctor.OK {
				t.Logf("%s: %s. To do: %s", r.Check, r.Says, r.Fix)
			}
		}
	}
	eventually("the cluster was compared", "cluster", doctor.OK, "agree")

	eventually("no class is told", "classes", doctor.Warning, n.provisioner)
	class := n.class("", func(c *storagev1.StorageClass) { c.AllowVolumeExpansion = new(true) })
	results, code := p.doctor()
	// The ClusterIP leads nowhere on this machine, so the way in is a warning.
	if code != 7 || doctor.Count(results, doctor.Failed) != 0 || doctor.Count(results, doctor.Warning) != 1 || !found(results, "way in", doctor.Warning, "") {
		t.Errorf("all is well, and the exit code is %d of %+v", code, results)
	}
	for check, says := range map[string]string{
		"service": "port 2049", "rights": "podnas has all the rights", "policy": "NFS volumes of " + n.provisioner + " alone", "clock": "agree", "ports": "NFS and MOUNT answer", "class " + class: "parameters are valid",
	} {
		if !found(results, check, doctor.OK, says) {
			t.Errorf("%s is not well in %+v", check, results)
		}
	}

	n.class("-bad", func(c *storagev1.StorageClass) { c.Parameters = map[string]string{"rootSquish": "true"} })
	n.class("-soft", func(c *storagev1.StorageClass) { c.MountOptions = []string{"soft"} })
	eventually("a bad class is told", "class "+n.name+"-bad", doctor.Failed, "rootSquash")
	eventually("a soft class is told", "class "+n.name+"-soft", doctor.Warning, "writes are lost")

	headless := *good
	headless.ClusterIP = corev1.ClusterIPNone
	for _, tt := range []struct {
		spec   *corev1.ServiceSpec
		behind string
		says   string
	}{
		{nil, "", "is missing"},
		{&headless, podIP, "has no ClusterIP"},
		{&corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "other", Port: 80}}}, podIP, "has no TCP port that leads"},
		{good, "10.244.0.8", "does not lead to this pod"},
	} {
		setService(t, tt.spec, tt.behind, p.port)
		eventually("a Service that "+tt.says, "service", doctor.Failed, tt.says)
	}
	if _, code := p.doctor(); code != 1 {
		t.Errorf("the exit code of a broken Service is %d, want 1", code)
	}
	setService(t, good, podIP, p.port)
	eventually("the Service is well again", "service", doctor.OK, "port 2049")
}

// Each right that is taken away is missed, by its name.
func TestDoctorRights(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.env = []string{"POD_NAMESPACE=" + podnasNamespace, "SERVICE_NAME=" + podnasName}
	p.start()
	if results, _ := p.doctor(); !found(results, "rights", doctor.OK, "all the rights") {
		t.Fatalf("with all rights: %+v", results)
	}
	rbac := cluster.client.RbacV1()
	clusterRole, err := rbac.ClusterRoles().Get(t.Context(), podnasName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role, err := rbac.Roles(podnasNamespace).Get(t.Context(), podnasName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	set := func(all, own []rbacv1.PolicyRule) {
		t.Helper()
		eventually(t, 10*time.Second, "the roles are changed", func() bool {
			c, err := rbac.ClusterRoles().Get(t.Context(), podnasName, metav1.GetOptions{})
			if err != nil {
				return false
			}
			r, err := rbac.Roles(podnasNamespace).Get(t.Context(), podnasName, metav1.GetOptions{})
			if err != nil {
				return false
			}
			c.Rules, r.Rules = all, own
			_, err = rbac.ClusterRoles().Update(t.Context(), c, metav1.UpdateOptions{})
			_, err2 := rbac.Roles(podnasNamespace).Update(t.Context(), r, metav1.UpdateOptions{})
			return err == nil && err2 == nil
		})
	}
	defer set(clusterRole.Rules, role.Rules)
	set(nil, nil)
	missing := 0
	for _, r := range controller.Rights() {
		missing += len(r.Verbs)
	}
	// Leases of its own namespace are a part of all Leases, and so on: what is
	// missing in all namespaces is told for the own one too.
	var results []doctor.Result
	eventually(t, time.Minute, "every right is missed", func() bool {
		results, _ = p.doctor()
		n := 0
		for _, r := range results {
			if r.Check == "rights" && r.Status == doctor.Failed {
				n++
			}
		}
		return n == missing
	})
	for _, r := range controller.Rights() {
		for _, verb := range r.Verbs {
			if !found(results, "rights", doctor.Failed, "may not "+verb+" "+r.Resource) {
				t.Errorf("%s of %s is not missed", verb, r.Resource)
			}
		}
	}
	// One alone.
	var without []rbacv1.PolicyRule
	for _, rule := range clusterRole.Rules {
		if len(rule.Resources) == 1 && rule.Resources[0] == "leases" {
			continue
		}
		without = append(without, rule)
	}
	set(without, role.Rules)
	eventually(t, time.Minute, "one right is missed", func() bool {
		results, _ = p.doctor()
		return doctor.Count(results, doctor.Failed) == 1 && found(results, "rights", doctor.Failed, "may not list leases.coordination.k8s.io: another podnas")
	})
}

// Which pods have volumes mounted, from the API server; and until they have not.
func TestMounted(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.env = []string{"POD_NAMESPACE=" + podnasNamespace}
	p.start()
	if out, errs, code := p.run("mounted"); code != 0 || !strings.Contains(out, "Nothing is mounted.") {
		t.Errorf("nothing is there: %d, %q, %q", code, out, errs)
	}
	class := n.class("", nil)
	n.claim("data", class, "1Mi", nil)
	volume := n.bound("data").Name
	pod := func(name, node, claim string) {
		t.Helper()
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{
				NodeName:   node,
				Containers: []corev1.Container{{Name: "c", Image: "i"}},
				Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
				}}},
			},
		}
		eventually(t, time.Minute, "a pod can be made", func() bool {
			_, err := cluster.client.CoreV1().Pods(n.name).Create(t.Context(), pod, metav1.CreateOptions{})
			return err == nil
		})
	}
	pod("reader", "node-a", "data")
	pod("writer", "node-b", "data")
	pod("waits", "", "data")
	pod("another", "node-a", "other")
	if _, errs, code := p.run("mounted"); code != 1 || !strings.Contains(errs, "kubectl apply -f deploy/components/drain/rbac.yaml") {
		t.Errorf("without the right: %d, %q, want it to say what to apply", code, errs)
	}
	const right = "../../deploy/components/drain/rbac.yaml"
	if _, err := kubectl(t.Context(), nil, "apply", "-f", right); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := kubectl(context.Background(), nil, "delete", "-f", right); err != nil {
			t.Error(err)
		}
	})
	eventually(t, time.Minute, "podnas may list pods", func() bool {
		_, _, code := p.run("mounted")
		return code == 4
	})
	out, errs, code := p.run("mounted")
	t.Logf("%s%s", out, errs)
	if code != 4 || !strings.Contains(errs, "2 pods with 1 volume") {
		t.Errorf("in use: %d, %q", code, errs)
	}
	for _, want := range []string{"reader", "node-a", "writer", "node-b", volume} {
		if !strings.Contains(out, want) {
			t.Errorf("%q does not name %s", out, want)
		}
	}
	if strings.Contains(out, "waits") || strings.Contains(out, "another") {
		t.Errorf("%q names pods that have nothing mounted", out)
	}
	now := int64(0)
	go func() {
		time.Sleep(2 * time.Second)
		for _, name := range []string{"reader", "writer"} {
			_ = cluster.client.CoreV1().Pods(n.name).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}) // seen below
		}
	}()
	out, errs, code = p.run("mounted", "--wait", "--timeout=30s")
	if code != 0 || !strings.Contains(out, "writer") || !strings.HasSuffix(out, "Nothing is mounted.\n") {
		t.Errorf("waited: %d, %q, %q", code, out, errs)
	}
	// What is being deleted is waited for too: without podnas it would stay.
	n.deleteVolume(volume)
	if out, errs, code := p.run("mounted"); code != 4 || !strings.Contains(out, "volume "+volume+" is to be deleted") {
		t.Errorf("a volume is being deleted: %d, %q, %q", code, out, errs)
	}
	// The policy's end is waited for, also when the claim alone was deleted, just now.
	n.claim("late", class, "1Mi", nil)
	n.bound("late")
	if _, err := kubectl(t.Context(), nil, "-n", n.name, "delete", "pvc", "data", "late"); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := p.run("mounted", "--wait", "--timeout=30s"); code != 0 || len(n.volumes()) != 0 {
		t.Errorf("waited: %d, %q, %q; %d volumes are there", code, out, errs, len(n.volumes()))
	}
}
