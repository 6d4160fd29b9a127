package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/quota"
)

// serveStandalone runs a podnas on a new disk until the test ends, and returns
// the disk and the folder of claims.
func serveStandalone(t *testing.T) (root, claims string) {
	t.Helper()
	return serveStandaloneWith(t)
}

func serveStandaloneWith(t *testing.T, flags ...string) (root, claims string) {
	t.Helper()
	root = t.TempDir()
	return root, serveDisk(t, root, flags...)
}

// serveDisk runs a podnas on a disk until the test ends, and returns the folder of claims.
func serveDisk(t *testing.T, root string, flags ...string) (claims string) {
	t.Helper()
	claims = t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, log, err := podnas(ctx, append([]string{
			"serve", "--standalone", "--root=" + root, "--claims=" + claims, "--overcommit=2", "--quota=server",
			"--listen=127.0.0.1:0", "--http=127.0.0.1:0",
		}, flags...)...)
		if err != nil {
			err = fmt.Errorf("%w; log: %s", err, log)
		}
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	deadline := time.Now().Add(20 * time.Second)
	for {
		_, _, err := podnas(t.Context(), "volume", "list", "--root="+root)
		if err == nil {
			return claims
		}
		if time.Now().After(deadline) {
			t.Fatalf("podnas does not answer: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A step is a command and what comes of it.
type step struct {
	name, command  string // with blanks between the arguments
	stdout, stderr string // what is printed has this in it; "-" stands for nothing
	code           int
	err            string // the error has this in it
}

func (s step) run(t *testing.T) {
	t.Helper()
	stdout, stderr, err := podnas(t.Context(), strings.Fields(s.command)...)
	if code := exitCode(err); code != s.code {
		t.Errorf("exit code %d (%v), want %d", code, err, s.code)
	}
	if err != nil && !strings.Contains(err.Error(), s.err) {
		t.Errorf("the error is %q, want %q in it", err, s.err)
	}
	// The steps run against a podnas without a cluster, or against none.
	if printed := stdout + stderr + fmt.Sprint(err); s.code != exitNotRunning && !strings.Contains(printed, "Examples:") && strings.Contains(printed, "kubectl") {
		t.Errorf("kubectl is advised without a cluster: %s", printed)
	}
	for _, printed := range []struct{ where, is, want string }{{"stdout", stdout, s.stdout}, {"stderr", stderr, s.stderr}} {
		if printed.want == "-" && printed.is != "" || printed.want != "-" && !strings.Contains(printed.is, printed.want) {
			t.Errorf("%s is %q, want %q", printed.where, printed.is, printed.want)
		}
	}
}

// The life of volumes, in this order, by what a person types.
func TestVolumeCommands(t *testing.T) {
	root, _ := serveStandalone(t)
	t.Setenv("PODNAS_ROOT", root)
	for _, s := range []step{
		{name: "empty", command: "volume list", stdout: "-", stderr: "there are no volumes on " + root},
		{name: "empty for programs", command: "volume list -o json", stdout: "[]", stderr: "-"},
		{name: "create", command: "volume create scratch --size 1Mi", stdout: "path: /scratch\n", stderr: "volume scratch is ready: 1Mi in " + root + "/scratch"},
		{name: "create again", command: "volume create scratch --size 1Mi", stdout: "name: scratch\n"},
		{name: "create another size", command: "volume create scratch --size 2Mi", code: 4, err: "already exists", stdout: "-"},
		{name: "create with options", command: "volume create team --size=2M --path=teams/one --read-only --sync=false --allowed-clients=10.0.0.0/8,fd00::/8 --on-delete=archive --storage-class=manual --access-modes=ReadWriteOnce,ReadOnlyMany --reclaim-policy=Delete --mount-options=hard", stdout: "storageClassName: manual\n"},
		{name: "list", command: "volume list", stdout: "scratch   1Mi"},
		{name: "list who keeps the sizes", command: "volume list", stdout: "ready   0         server   scratch\n"},
		{name: "list why", command: "volume list", stdout: "\nQUOTA server: the server enforces sizes by counting what clients write, as requested\n"},
		{name: "list the class", command: "volume list", stdout: "0%     manual   -       ready"},
		{name: "list names", command: "volume list -o name --sort=name", stdout: "scratch\nteam\n"},
		{name: "list names by size", command: "volume list -o name --sort=size", stdout: "team\nscratch\n"},
		{name: "list in an unknown order", command: "volume list --sort=szie", code: 2, err: `did you mean "size"?: use one of name, claim, class, size, used, use%, clients`},
		{name: "watch a document", command: "volume list --watch -o json", code: 2, err: "use -o table, wide or name"},
		{name: "list for programs", command: "volume list -o json", stdout: `"by": "server"`},
		{name: "list wide", command: "volume list -o wide", stdout: "read-only,no-sync,allowed-clients"},
		{name: "show", command: "volume show team", stdout: "10.0.0.0/8 fd00::/8"},
		{name: "show who keeps the size", command: "volume show scratch", stdout: "server: the server enforces sizes"},
		{name: "show how to mount", command: "volume show scratch", stdout: "sudo mount -t nfs -o proto=tcp,"},
		{name: "show as YAML", command: "volume show team -o yaml", stdout: "onDelete: archive\n"},
		{name: "resize", command: "volume resize scratch 3Mi", stdout: "volume scratch now has a limit of 3Mi and 1,024 files\n", stderr: "podnas volume manifests scratch\n"},
		{name: "resize for more files", command: "volume resize scratch 3Mi --bytes-per-inode 1Ki", stdout: "a limit of 3Mi and 3,072 files\n"},
		{name: "resize for fewer files", command: "volume resize scratch 3Mi --bytes-per-inode 2Ki", code: 2, err: "volume scratch may have 3072 inodes, and one for each 2Ki would be 1536"},
		{name: "resize for no files", command: "volume resize scratch 3Mi --bytes-per-inode 1", code: 2, err: "256 bytes or more"},
		{name: "list how many files", command: "volume list -o wide", stdout: "/3,072 "},
		{name: "show how many files", command: "volume show scratch", stdout: " of 3,072"},
		{name: "show how many files, for programs", command: "volume show scratch -o json", stdout: `"inodes": 3072`},
		{name: "create for many files", command: "volume create small --size 1Mi --bytes-per-inode 512", stdout: "name: small\n"},
		{name: "show many files", command: "volume show small", stdout: " of 2,048"},
		{name: "delete many files", command: "volume delete small --yes", stdout: "removed in the background"},
		{name: "shrink", command: "volume resize scratch 1Mi", code: 2, err: "scratch"},
		{name: "manifests", command: "volume manifests", stdout: "\n---\n"},
		{name: "one manifest", command: "volume manifests scratch", stdout: "storage: 3Mi\n"},
		{name: "a manifest with its quota", command: "volume manifests scratch", stdout: "podnas.io/quota: server\n"},
		{name: "a manifest with the reason", command: "volume manifests scratch", stdout: "podnas.io/quota-reason: the server enforces sizes"},
		{name: "delete unasked", command: "volume delete team", code: 2, err: "use --yes"},
		{name: "delete", command: "volume delete team --yes", stdout: "'podnas volume adopt team' restores it"},
		{name: "delete again", command: "volume delete team --yes", code: 2, err: "use --kept"},
		{name: "delete nothing", command: "volume delete none --yes", code: 3, err: "podnas volume list --all"},
		{name: "list all", command: "volume list --all", stdout: "archived"},
		{name: "show what is archived", command: "volume show team", stdout: "its files are in the archive"},
		{name: "adopt with options", command: "volume adopt team --root-squash", code: 2, err: "leave out rootSquash", stdout: "-"},
		{name: "adopt", command: "volume adopt team", stdout: "storageClassName: manual\n"},
		{name: "discard what is in use", command: "volume delete team --kept -y", code: 2, err: "don't use --kept"},
		{name: "delete for good", command: "volume rm scratch -y", stdout: "removed in the background"},
		{name: "create what will be retained", command: "volume create old --size=1Mi --on-delete=retain", stdout: "name: old\n"},
		{name: "retain", command: "volume delete old -y", stdout: "its files stay in"},
		{name: "discard", command: "volume delete old --kept -y", stdout: "removed in the background"},
		{name: "discard again", command: "volume delete old --kept -y", code: 3, err: "old"},

		{name: "no such volume", command: "volume show nothing", code: 3, err: "nothing"},
		{name: "no room", command: "volume create huge --size=1Ei", code: 5, err: "1Ei", stdout: "-"},
		{name: "no size", command: "volume create new", code: 2, err: "--size is missing"},
		{name: "bad size", command: "volume create new --size=lots", code: 2, err: "for example 500Mi"},
		{name: "a size without its unit", command: "volume create new --size=10", code: 2, err: "did you mean 10Gi?"},
		{name: "a size that no disk has", command: "volume create new --size=1e30", code: 2, err: "too large"},
		{name: "size 0", command: "volume create new --size=0", code: 2, err: "greater than 0"},
		{name: "bad new size", command: "volume resize team much", code: 2, err: "for example 500Mi"},
		{name: "no name", command: "volume create --size=1Mi", code: 2, err: "NAME is missing"},
		{name: "bad name", command: "volume create New_Volume --size=1Mi", code: 2, err: "New_Volume"},
		{name: "bad path", command: "volume create new --size=1Mi --path=../new", code: 2, err: "../new"},
		{name: "bad files", command: "volume create new --size=1Mi --bytes-per-inode=16", code: 2, err: "bytesPerInode"},
		{name: "bad mode", command: "volume create new --size=1Mi --mode=rwx", code: 2, err: "octal"},
		{name: "bad network", command: "volume create new --size=1Mi --allowed-clients=10.0.0.1/8", code: 2, err: "10.0.0.0/8"},
		{name: "bad policy", command: "volume create new --size=1Mi --reclaim-policy=Recycle", code: 2, err: "Retain or Delete"},
		{name: "bad output", command: "volume list -o xml", code: 2, err: "-o table, wide, name, json, yaml"},
		{name: "too many arguments", command: "volume show a b", code: 2, err: `unexpected argument "b"`},
		{name: "no such flag", command: "volume list --everything", code: 2, err: "--everything"},
		{name: "no such command", command: "volume crate", code: 2, err: `did you mean "create"?`},
		{name: "adopt nothing", command: "volume adopt nothing --size=1Mi", code: 3, err: "nothing"},
	} {
		t.Run(s.name, s.run)
	}
	if left, err := os.ReadDir(root); err != nil || len(left) != 2 { // .podnas, teams
		t.Errorf("on the disk are %v, %v", left, err)
	}
}

// What is printed is what kubectl takes: parsed, it is what was asked for.
func TestManifestsCommand(t *testing.T) {
	root, claims := serveStandalone(t)
	t.Setenv("PODNAS_ROOT", root)
	mustDo(t, os.WriteFile(filepath.Join(claims, "claim.yaml"), []byte(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: podnas}
provisioner: podnas.io/nfs
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: demo}
spec:
  storageClassName: podnas
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 1Mi}}
`), 0o600))
	deadline := time.Now().Add(20 * time.Second)
	var list []control.Volume
	for len(list) == 0 {
		out, _, err := podnas(t.Context(), "volume", "list", "-o", "json")
		mustDo(t, errors.Join(err, json.Unmarshal([]byte(out), &list)))
		if time.Now().After(deadline) {
			t.Fatal("the claim gets no volume")
		}
		time.Sleep(10 * time.Millisecond)
	}
	out, _, err := podnas(t.Context(), "volume", "manifests", "--bind")
	mustDo(t, err)
	documents := strings.Split(out, "---\n")
	if len(documents) != 2 {
		t.Fatalf("%d documents, want a volume and its claim:\n%s", len(documents), out)
	}
	var pv v1.PersistentVolume
	var claim v1.PersistentVolumeClaim
	mustDo(t, errors.Join(yaml.UnmarshalStrict([]byte(documents[0]), &pv), yaml.UnmarshalStrict([]byte(documents[1]), &claim)))
	if pv.Spec.StorageClassName != "podnas" || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.Name != "data" || pv.Spec.ClaimRef.UID != "" ||
		pv.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete {
		t.Errorf("the volume is %+v", pv)
	}
	if claim.Namespace != "demo" || claim.Name != "data" || claim.Spec.VolumeName != pv.Name || *claim.Spec.StorageClassName != "podnas" ||
		claim.Spec.Resources.Requests.Storage().String() != "1Mi" {
		t.Errorf("the claim is %+v", claim)
	}
	if strings.Contains(out, "status") || strings.Contains(out, "creationTimestamp") {
		t.Errorf("the manifests have what only the API server says:\n%s", out)
	}

	alone, _, err := podnas(t.Context(), "volume", "manifests", "-o", "json")
	mustDo(t, err)
	var items v1.List
	mustDo(t, json.Unmarshal([]byte(alone), &items))
	if items.Kind != "List" || len(items.Items) != 1 {
		t.Errorf("without --bind: %s", alone)
	}
	step{command: "volume delete -y " + pv.Name, code: 4, err: "remove the claim's file"}.run(t)
	step{command: "volume resize " + pv.Name + " 2Mi", code: 4, err: "set spec.resources.requests.storage to 2Mi in the claim's file"}.run(t)
}

// A copy is waited for, or goes on alone.
func TestCreateFrom(t *testing.T) {
	root, _ := serveStandalone(t)
	t.Setenv("PODNAS_ROOT", root)
	step{command: "volume create source --size=8Mi"}.run(t)
	mustDo(t, os.WriteFile(filepath.Join(root, "source", "file"), bytes.Repeat([]byte("podnas "), 100_000), 0o600))
	step{command: "volume create one --size=8Mi --from=source", stdout: "name: one\n", stderr: "copying source: 0%, 0 of "}.run(t)
	if info, err := os.Stat(filepath.Join(root, "one", "file")); err != nil || info.Size() != 700_000 {
		t.Errorf("the copy's file: %v, %v", info, err)
	}
	step{command: "volume create two --size=8Mi --from=source --no-wait", stdout: "-", stderr: "continues in the background"}.run(t)
	step{command: "volume create two --size=8Mi --from=source", stdout: "name: two\n"}.run(t)
	step{command: "volume show two", stdout: "source"}.run(t)
	step{command: "volume create three --size=8Mi --from=nothing", code: 3, err: "nothing"}.run(t)
}

func TestDoctorCommand(t *testing.T) {
	root, _ := serveStandalone(t)
	t.Setenv("PODNAS_ROOT", root)
	step{command: "doctor", stdout: "Nothing is wrong."}.run(t)
	step{command: "doctor", stdout: "at most 2 times the disk may be promised"}.run(t)
	step{command: "volume create gone --size=1Mi"}.run(t)
	mustDo(t, os.Remove(filepath.Join(root, "gone")))
	step{command: "doctor", stdout: "\nvolume gone: ", code: 1, err: "1 problem found"}.run(t)
	step{command: "doctor -o json", stdout: `"check": "volume gone"`, code: 1, err: "1 problem found"}.run(t)
	mustDo(t, os.Mkdir(filepath.Join(root, "gone"), 0o755))
	mustDo(t, os.Chmod(filepath.Join(root, ".podnas"), 0o755))
	step{command: "doctor", stdout: "WARNING  secrets", code: 7, err: "1 warning"}.run(t)
	step{command: "doctor pod -o wide", code: 2, err: "table, json, yaml"}.run(t)
	step{command: "doctor pod --kubeconfig=" + filepath.Join(root, "none"), code: 1, err: "--kubeconfig"}.run(t)
	step{command: "doctor -o wide", code: 2, err: "table, json, yaml"}.run(t)
}

func TestNotRunning(t *testing.T) {
	root := filepath.Join(t.TempDir(), "nowhere")
	for _, command := range []string{
		"volume create a --size=1Mi", "volume list", "volume show a", "volume resize a 2Mi", "volume delete a -y", "volume archive a -y",
		"volume adopt a", "volume manifests", "doctor", "mounted", "mounted --wait",
	} {
		t.Run(command, step{
			command: command + " --root=" + root, stdout: "-", stderr: "-",
			code: exitNotRunning, err: "podnas serve --root=" + root,
		}.run)
	}
	if _, err := os.Stat(root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a command touched the disk: %v", err)
	}
}

func TestVolumeHelp(t *testing.T) {
	for _, tt := range []struct{ command, want string }{
		{"volume --help", "Exit codes"},
		{"volume", "kubectl exec -n podnas podnas-0 -- podnas volume list"},
		{"volume create --help", "| kubectl apply -f -"},
		{"volume adopt --help", "--path old/photos"},
		{"volume manifests --help", "--bind | kubectl apply -f -"},
		{"volume delete --help", "--yes"},
		{"doctor --help", "kubectl exec -n podnas podnas-0 -- podnas doctor"},
		{"serve --help", "--overcommit"},
	} {
		step{command: tt.command, stdout: tt.want, stderr: "-"}.run(t)
	}
}

func TestExitCode(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("something"), exitFailed},
		{&usageError{errors.New("something")}, exitUsage},
		{fmt.Errorf("wrapped: %w", &control.NotReachedError{}), exitNotRunning},
		{errors.Join(&downError{verdict([]doctor.Result{{Status: doctor.Warning}})}), exitNotRunning},
		{&control.Error{Code: control.Internal}, exitFailed},
		{&control.Error{Code: control.Invalid}, exitUsage},
		{&control.Error{Code: control.NotFound}, exitNotFound},
		{&control.Error{Code: control.Exists}, exitRefused},
		{fmt.Errorf("wrapped: %w", &control.Error{Code: control.Claimed}), exitRefused},
		{&control.Error{Code: control.Busy}, exitRefused},
		{&control.Error{Code: control.NoSpace}, exitNoSpace},
		{errors.Join(errors.New("something"), verdict([]doctor.Result{{Status: doctor.Failed}, {Status: doctor.Warning}})), exitFailed},
		{verdict([]doctor.Result{{Status: doctor.OK}, {Status: doctor.Warning}}), exitWarnings},
		{verdict([]doctor.Result{{Status: doctor.OK}}), 0},
		{&inUseError{}, exitRefused},
	} {
		if got := exitCode(tt.err); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.err, got, tt.want)
		}
	}
}

func TestConfirm(t *testing.T) {
	v := control.Volume{Volume: volume.Volume{Name: "scratch", Path: "scratch", Size: 1 << 30, Claim: &volume.Claim{Namespace: "demo", Name: "data"}}}
	question := deleteQuestion(v, "delete", v.FateOfFiles("/export"))
	for _, want := range []string{"Delete volume scratch (1Gi", "claim demo/data", "files are removed"} {
		if !strings.Contains(question, want) {
			t.Errorf("asked %q, want %q in it", question, want)
		}
	}
	for answer, want := range map[string]string{
		"y\n": "", "YES\n": "", "y": "",
		"\n": `not "y"`, "n\n": `not "y"`, "yesterday\n": `not "y"`, "": "in a script use --sure",
	} {
		var asked bytes.Buffer
		err := confirm(bufio.NewReader(strings.NewReader(answer)), &asked, question, "--sure")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || asked.String() != question {
			t.Errorf("%q answered to %q: %v, want %q", answer, asked.String(), err, want)
		}
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What is still being counted is told as such.
func TestPartialCount(t *testing.T) {
	v := control.Volume{Volume: volume.Volume{Name: "v", Size: 1 << 30}, State: volume.Ready, Used: &quota.Usage{Bytes: 5 << 20, Inodes: 7, Partial: true}}
	var table, one bytes.Buffer
	mustDo(t, printTable(&table, false, []control.Volume{v}, false))
	mustDo(t, printVolume(&one, shown{Volume: v, Directory: "/disk/v", Mount: "-"}))
	if !strings.Contains(table.String(), " 5Mi+ ") || !strings.Contains(one.String(), "5Mi, 7 files so far") {
		t.Errorf("%s\n%s", &table, &one)
	}
	for want, assigning := range map[string]*control.Assigning{
		"ready, but its size is not enforced until its files are assigned to it: 7 files with 5Mi so far\n": {},
		"ready, but its size is not enforced, because its files can't be assigned to it: a bad sector\n":    {Problem: "a bad sector"},
	} {
		v.Assigning = assigning
		one.Reset()
		mustDo(t, printVolume(&one, shown{Volume: v}))
		if !strings.Contains(one.String(), want) {
			t.Errorf("%s, want %q", &one, want)
		}
	}
	v.Used.Partial = false
	if got := usedBytes(v); got != "5Mi" {
		t.Errorf("all is counted: %q", got)
	}
}

func TestFormatCount(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 files", 1: "1 file", 2: "2 files", 999: "999 files", 1000: "1,000 files", 12345678: "12,345,678 files"} {
		if got := volume.FormatCount(n, "file"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
