//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
)

// previous is the manifest of the version to upgrade from, which previous.sh makes.
func previous() string { return filepath.Join(os.Getenv("E2E_PREVIOUS"), "previous.yaml") }

// upgrade applies the present manifest over the previous version's, as a user does: the
// StatefulSet replaces the pod, what is mounted stays mounted, nothing is lost, and the
// volumes are what they were.
func (w walkthrough) upgrade(t *testing.T) {
	kubectl(t, "apply", "-f", "kept.yaml")
	kept := boundVolume(t, "kept")
	kubectl(t, "wait", "--for=condition=Ready", "pod/kept", "--timeout=300s")
	inKept(t, "dd if=/dev/urandom of=/kept/file bs=1M count=10 conv=fsync 2>/dev/null && cd /kept && sha256sum file >sum && sync sum")
	onDisk := records(t)

	replacePodnas(t, func() { w.run(t, "README.md", "install") })
	if got := imageOf(t); strings.HasSuffix(got, ":previous") {
		t.Fatalf("podnas still has the image %s", got)
	}
	finds(t, "by the index")
	if got := records(t); got != onDisk {
		t.Errorf("identity and records on the disk were\n%s\nand are\n%s", onDisk, got)
	}
	if got := boundVolume(t, "kept"); got.UID != kept.UID || !equality.Semantic.DeepEqual(got.Spec, kept.Spec) {
		t.Errorf("the volume was\n%+v\nand is\n%+v", kept.Spec, got.Spec)
	}
	keptIsWhole(t)
	w.watch(t, "README.md", "watch", showsLine(len(shown(t))+1))
}

// toKernelHandles replaces podnas by one with deploy/overlays/handles.
func toKernelHandles(t *testing.T) {
	t.Helper()
	replacePodnas(t, func() { kubectl(t, "apply", "-k", deploy+"overlays/handles") })
	finds(t, "by the kernel's handles")
}

// toIndex replaces podnas by one with the present manifest.
func toIndex(t *testing.T) {
	t.Helper()
	replacePodnas(t, func() { kubectl(t, "apply", "-f", deploy+"podnas.yaml") })
	finds(t, "by the index")
}

// finds checks how podnas finds files.
func finds(t *testing.T, how string) {
	t.Helper()
	if log := kubectl(t, "-n", "podnas", "logs", "podnas-0"); !strings.Contains(log, "files are found "+how) {
		t.Fatalf("podnas does not find files %s:\n%s", how, log)
	}
}

// downgradeMounted goes back to the previous version, and forth again, under volumes that are mounted and locked.
func downgradeMounted(t *testing.T) {
	l := startLockers(t, "podnas")
	l.versions(t)
	keptIsWhole(t)
	l.stop(t)
	l.remove(t)
}

// downgrade goes back to the previous version while no volume is mounted. It serves what the present one has made, and
// makes and deletes volumes. The step with a quota goes forth again.
func downgrade(t *testing.T) {
	kubectl(t, "delete", "pod", "small", "--timeout=180s")
	mountAnew(t, func() {
		kubectl(t, "apply", "-f", previous())
		kubectl(t, "-n", "podnas", "rollout", "status", "statefulset/podnas", "--timeout=300s")
	})
	if got := imageOf(t); !strings.HasSuffix(got, ":previous") {
		t.Fatalf("podnas has the image %s, want the previous one", got)
	}
	servesThrough(t, "native")
	keptIsWhole(t)
	smallOfVersion3(t)
	kubectl(t, "wait", "--for=condition=Ready", "pod/small", "--timeout=180s")
	if got := root(t, "cat /small/file"); got != "new\n" {
		t.Errorf("the file in the claim that was made before has %q", got)
	}
	kubectl(t, "delete", "pod", "small", "--timeout=180s")
	kubectl(t, "delete", "pvc", "small", "--timeout=180s")
	kubectl(t, "delete", "-f", deploy+"examples/nfs3/storageclass.yaml")
	apply(t, podnas(t, "volume", "create", "older", "--size=16Mi"))
	kubectl(t, "wait", "--for=jsonpath={.status.phase}=Available", "pv/older", "--timeout=180s")
	kubectl(t, "delete", "pv", "older", "--timeout=180s")
	podnas(t, "volume", "delete", "older", "--yes")
}

// mountAnew ends the pods that write and read, and then starts them again: the node has no handle of
// before. Their files begin anew.
func mountAnew(t *testing.T, between func()) {
	t.Helper()
	kubectl(t, "delete", "pod", "writer", "--timeout=180s")
	inKept(t, "rm /shared/log /shared/held")
	kubectl(t, "delete", "pod", "reader", "kept", "--timeout=180s")
	between()
	kubectl(t, "apply", "-f", deploy+"examples/writer.yaml", "-f", deploy+"examples/reader.yaml", "-f", "kept.yaml")
	kubectl(t, "wait", "--for=condition=Ready", "pod/writer", "pod/reader", "pod/kept", "--timeout=180s")
	eventually(t, time.Minute, "the reader shows what is written", func() bool { return len(shown(t)) > 0 })
}

// replacePodnas has another pod take podnas's place, and checks that the pods that use its
// volumes do not notice but by waiting.
func replacePodnas(t *testing.T, replace func()) {
	t.Helper()
	uid := podUID(t, "podnas", "podnas-0")
	replace()
	kubectl(t, "-n", "podnas", "rollout", "status", "statefulset/podnas", "--timeout=300s")
	if podUID(t, "podnas", "podnas-0") == uid {
		t.Fatal("podnas-0 is the same pod as before")
	}
	servesThrough(t, "native")
	lines, numbers := len(written(t)), len(held(t))
	eventually(t, time.Minute, "both files that are written to grow", func() bool {
		return len(written(t)) >= lines+3 && len(held(t)) > numbers
	})
	goesOn(t)
	inSequence(t, "the file that is held open", held(t))
	// A reader whose file had become another one would have begun anew.
	inSequence(t, "what the reader shows", shown(t))
	neverRestarted(t, "kept") // it ends when it can't write
}

// keptIsWhole checks the volume of kept.yaml: its files, its size, and who acts there.
func keptIsWhole(t *testing.T) {
	t.Helper()
	out := inKept(t, `cd /kept && sha256sum -c sum && df -k . && rm -f owner && echo >owner && stat -c 'owner %u:%g' owner
		dd if=/dev/zero of=more bs=1M count=10 conv=fsync 2>&1 || echo "10 MiB more: $?"
		rm more`)
	if !regexp.MustCompile(`(?s)^file: OK\n.*\s16384\s.*\nowner 1234:1234\n`).MatchString(out) || !isFull.MatchString(out) || !strings.HasSuffix(out, "10 MiB more: 1\n") {
		t.Errorf("in a claim of 16384 KiB that has a file of 10 MiB, where all act as 1234:\n%s", out)
	}
}

// inKept runs a script in the pod of kept.yaml.
func inKept(t *testing.T, script string) string {
	t.Helper()
	return kubectl(t, "exec", "kept", "--", "sh", "-c", script)
}

// held returns the numbers in the file that the pod of kept.yaml holds open.
func held(t *testing.T) []int {
	t.Helper()
	return sequence(t, inKept(t, "cat /shared/held"))
}

// shown returns the numbers of the lines that the reader has shown.
func shown(t *testing.T) []int {
	t.Helper()
	// tail may also say that there is no file yet.
	lines := regexp.MustCompile(`(?m)^\d+ .*$`).FindAllString(kubectl(t, "logs", "reader"), -1)
	return sequence(t, strings.Join(lines, "\n"))
}

// imageOf returns the image that podnas's pod runs.
func imageOf(t *testing.T) string {
	t.Helper()
	return kubectl(t, "-n", "podnas", "get", "pod", "podnas-0", "-o", "jsonpath={.spec.containers[0].image}")
}

// records returns the identity and the records of the volumes on podnas's disk.
func records(t *testing.T) string {
	t.Helper()
	// A version may add what a volume lacks.
	return kubectl(t, "exec", "disk", "--", "sh", "-c", `cd /disk/.podnas && cat instance.json volumes/*.json |
		grep -v '"\(inodes\|handles\|checksum\|disk\|stateDir\)":' | sed 's/,$//' | sort`)
}
