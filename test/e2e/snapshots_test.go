//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/test/cluster/controlplane"
)

// volumeSnapshots: while podnas runs, the cluster gets the kinds of VolumeSnapshots and the stock controller, and podnas the
// rights. A VolumeSnapshot of the claim that the writer writes to is read in three ways: in .snapshots, and by two claims of it.
func volumeSnapshots(t *testing.T) {
	switchOnVolumeSnapshots(t)
	folders := len(diskFolders(t))
	apply(t, `{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshot, metadata: {name: before}, spec: {source: {persistentVolumeClaimName: shared}}}`)
	kubectl(t, "wait", "--for=jsonpath={.status.readyToUse}=true", "volumesnapshot/before", "--timeout=120s")
	snapshot := kubectl(t, "get", "volumesnapshot", "before", "-o", "jsonpath={.metadata.uid}")
	apply(t, claimOf("before", "copied", "ReadWriteMany")+claimOf("before", "shown", "ReadOnlyMany")+podWith("look", "shared", "copied", "shown"))
	kubectl(t, "wait", "--for=condition=Ready", "pod/look", "--timeout=180s")

	look := func(script string) string { return kubectl(t, "exec", "look", "--", "sh", "-c", script) }
	kept := look("cat /shared/.snapshots/" + snapshot + "/log")
	inSequence(t, "the snapshot", sequence(t, kept))
	for _, claim := range []string{"copied", "shown"} {
		if got := look("cat /" + claim + "/log"); got != kept {
			t.Errorf("the claim %s of the snapshot has\n%s\nand the snapshot\n%s", claim, got, kept)
		}
	}
	if got := look("ls -A /shared"); strings.Contains(got, "snapshots") {
		t.Errorf("the volume lists %q", got)
	}
	if got := look("echo more >>/copied/log && sync /copied/log && tail -n 1 /copied/log"); got != "more\n" {
		t.Errorf("after a line more, the copy ends with %q", got)
	}
	for _, file := range []string{"/shared/.snapshots/" + snapshot + "/log", "/shown/log"} {
		if out, err := tryKubectl(t, "exec", "look", "--", "sh", "-c", "echo more >>"+file); err == nil || !regexp.MustCompile("Read-only file system|Permission denied").MatchString(err.Error()) {
			t.Errorf("writing to %s: %q, %v", file, out, err)
		}
	}
	if got := diskFolders(t); len(got) != folders+1 {
		t.Errorf("the disk has %q, want one more than %d: what is shown has no files of its own", got, folders)
	}
	volume := boundVolume(t, "shared").Name
	if out := podnas(t, "snapshot", "list", volume); !strings.Contains(out, snapshot) {
		t.Errorf("podnas snapshot list says\n%s", out)
	}
	if out := podnas(t, "snapshot", "diff", volume, snapshot); !strings.Contains(out, "log") {
		t.Errorf("podnas snapshot diff says\n%s", out)
	}
	if out := podnas(t, "doctor"); !strings.Contains(out, "Nothing is wrong.") {
		t.Errorf("the doctor says\n%s", out)
	}

	kubectl(t, "delete", "pod", "look", "--timeout=180s")
	kubectl(t, "delete", "pvc", "copied", "shown", "--timeout=180s")
	kubectl(t, "delete", "volumesnapshot", "before", "--timeout=180s")
	eventually(t, time.Minute, "the snapshot is gone", func() bool { return !strings.Contains(podnas(t, "snapshot", "list", volume), snapshot) })
	eventually(t, time.Minute, "the copy is gone", func() bool { return len(diskFolders(t)) == folders })
	snapshotRights(t, "delete")
	goesOn(t)
}

// snapshotRights applies or deletes what podnas needs for VolumeSnapshots.
func snapshotRights(t *testing.T, verb string) {
	t.Helper()
	for _, part := range []string{"class", "policy", "rbac"} {
		kubectl(t, verb, "-f", deploy+"components/snapshots/"+part+".yaml")
	}
}

// switchOnVolumeSnapshots gives the cluster what VolumeSnapshots need. podnas, which runs, finds it.
func switchOnVolumeSnapshots(t *testing.T) {
	t.Helper()
	crds, err := controlplane.SnapshotCRDs(t.Context(), "../cluster/snapshotcontroller")
	if err != nil {
		t.Fatal(err)
	}
	before := podUID(t, "podnas", "podnas-0")
	kubectl(t, "apply", "--server-side", "-k", crds)
	kubectl(t, "wait", "--for=condition=Established", "--timeout=60s", "crd/volumesnapshots.snapshot.storage.k8s.io",
		"crd/volumesnapshotcontents.snapshot.storage.k8s.io", "crd/volumesnapshotclasses.snapshot.storage.k8s.io")
	if err := cluster.plane.StartSnapshotController(); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "apply", "-k", deploy+"overlays/snapshots")
	eventually(t, time.Minute, "podnas has found the API", func() bool {
		return strings.Contains(kubectl(t, "-n", "podnas", "logs", "podnas-0"), "serving VolumeSnapshots")
	})
	if after := podUID(t, "podnas", "podnas-0"); after != before {
		t.Error("podnas was replaced, only to serve VolumeSnapshots")
	}
}

// claimOf is a claim of a VolumeSnapshot.
func claimOf(snapshot, name, mode string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s}, spec: {storageClassName: podnas, accessModes: [%s],
  resources: {requests: {storage: 1Gi}}, dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: %s}}}
---
`, name, mode, snapshot)
}

// podWith is a pod that has claims at their names.
func podWith(name string, claims ...string) string {
	var mounts, volumes []string
	for _, c := range claims {
		mounts = append(mounts, fmt.Sprintf("{name: %s, mountPath: /%[1]s}", c))
		volumes = append(volumes, fmt.Sprintf("{name: %s, persistentVolumeClaim: {claimName: %[1]s}}", c))
	}
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {terminationGracePeriodSeconds: 0, containers: [{name: main,
  image: "busybox:stable", imagePullPolicy: IfNotPresent, command: [sleep, infinity], volumeMounts: [%s]}], volumes: [%s]}}
---
`, name, strings.Join(mounts, ", "), strings.Join(volumes, ", "))
}

// backup follows docs/restic.md: a snapshot of a claim goes to another by the CronJob, the claim is lost, and the Job brings its
// files back into a new one of the same name.
func backup(t *testing.T) {
	dir, folders := deploy+"examples/backup", len(diskFolders(t))
	kubectl(t, "create", "secret", "generic", "restic", "--from-literal=RESTIC_REPOSITORY=/repository", "--from-literal=RESTIC_PASSWORD=secret")
	objects := strings.Replace(kubectl(t, "kustomize", dir), "name: backups\nspec:\n", "name: backups\nspec:\n  storageClassName: podnas\n", 1) // the default class has no provisioner here
	apply(t, objects)
	user := podWith("user", "data")
	apply(t, user)
	kubectl(t, "wait", "--for=condition=Ready", "pod/user", "--timeout=180s")
	in := func(script string) string { return kubectl(t, "exec", "user", "--", "sh", "-c", script) }
	in("cd /data && mkdir folder && head -c 3000000 /dev/urandom >folder/file && ln folder/file link && chown 1000:1000 folder/file && chmod 640 folder/file && sync")
	const look = "cd /data && find . | sort && md5sum link && stat -c '%u %g %a %h %Y' folder/file"
	kept := in(look)

	backupByAPI(t, dir+"/volumesnapshot.yaml")
	volume := boundVolume(t, "data").Name
	if out := podnas(t, "volume", "show", volume); !strings.Contains(out, "hourly=24") {
		t.Errorf("the volume has no schedule:\n%s", out)
	}
	podnas(t, "snapshot", "create", volume, "tonight")
	in("echo later >/data/link && touch /data/later && sync")
	kubectl(t, "set", "env", "cronjob/backup-data", "SNAPSHOT=tonight")
	kubectl(t, "create", "job", "--from=cronjob/backup-data", "first-backup")
	done(t, "job/first-backup")
	if log := kubectl(t, "logs", "job/first-backup"); !regexp.MustCompile(`Files: +0 new, +0 changed, +2 unmodified`).MatchString(log) {
		t.Errorf("the backup of the same files finds others than the one by a VolumeSnapshot:\n%s", log)
	}

	kubectl(t, "delete", "pod", "user", "--timeout=180s")
	kubectl(t, "delete", "job", "first-backup", "--timeout=180s")
	kubectl(t, "delete", "pvc", "data", "--timeout=180s")
	apply(t, objects)
	if again := boundVolume(t, "data").Name; again == volume {
		t.Fatalf("the new claim has the old volume %s", volume)
	}
	restore := strings.TrimSpace(kubectl(t, "create", "-f", dir+"/restore.yaml", "-o", "name"))
	done(t, restore)
	apply(t, user)
	kubectl(t, "wait", "--for=condition=Ready", "pod/user", "--timeout=180s")
	if got := in(look); got != kept {
		t.Errorf("what was restored is\n%s\nwant\n%s", got, kept)
	}

	kubectl(t, "delete", "pod", "user", "--timeout=180s")
	kubectl(t, "delete", restore, "secret/restic", "--timeout=180s")
	kubectl(t, "delete", "-k", dir, "--timeout=180s")
	eventually(t, time.Minute, "both claims' folders are gone", func() bool { return len(diskFolders(t)) == folders })
}

// backupByAPI backs up what a read-only claim of a VolumeSnapshot shows.
func backupByAPI(t *testing.T, example string) {
	t.Helper()
	snapshotRights(t, "apply") // the test before has left the controller
	kubectl(t, "apply", "-f", example)
	done(t, "job/backup-data-tonight")
	if log := kubectl(t, "logs", "job/backup-data-tonight"); !regexp.MustCompile(`Files: +1 new`).MatchString(log) || !strings.Contains(log, "no errors were found") {
		t.Errorf("the backup says\n%s", log)
	}
	snapshot := kubectl(t, "get", "volumesnapshot", "data-tonight", "-o", "jsonpath={.metadata.uid}")
	kubectl(t, "delete", "-f", example, "--timeout=180s")
	eventually(t, time.Minute, "the snapshot is gone", func() bool { return !strings.Contains(podnas(t, "snapshot", "list"), snapshot) })
	snapshotRights(t, "delete")
}

// done waits for a job, and shows its log if it fails.
func done(t *testing.T, job string) {
	t.Helper()
	if _, err := tryKubectl(t, "wait", "--for=condition=complete", "--timeout=150s", job); err != nil {
		log, _ := tryKubectl(t, "logs", job, "--tail=50")
		t.Fatalf("%v\n%s", err, log)
	}
}
