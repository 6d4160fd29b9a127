package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/test/conformance/nfstest"
	"github.com/podnas/podnas/test/testdisk"
)

// appliance is a process of podnas on a folder, that can be stopped and started. It is not the
// test's process: client-go logs through one logger there, and tests have several podnas at once.
type appliance struct {
	t                                *testing.T
	program, root, claims, http, nfs string
	stop                             func()
}

func newAppliance(t *testing.T) *appliance {
	program, err := builtPodnas()
	mustDo(t, err)
	a := &appliance{t: t, program: program, root: t.TempDir(), claims: t.TempDir(), http: freeAddress(t), nfs: freeAddress(t)}
	t.Cleanup(func() { a.stop() })
	a.start()
	return a
}

func (a *appliance) start(flags ...string) {
	a.t.Helper()
	a.stop = func() {}
	var log syncBuffer
	cmd := exec.Command(a.program, append([]string{
		"serve", "--standalone", "--root=" + a.root, "--claims=" + a.claims, "--quota=server", "--claim-grace=1h",
		"--listen=" + a.nfs, "--http=" + a.http,
	}, flags...)...)
	cmd.Stdout, cmd.Stderr = &log, &log
	mustDo(a.t, cmd.Start())
	a.stop = func() {
		mustDo(a.t, cmd.Process.Signal(syscall.SIGTERM))
		if err := cmd.Wait(); err != nil {
			a.t.Errorf("podnas ended: %v\n%s", err, log.String())
		}
	}
	a.until("podnas answers", func() string {
		_, _, err := podnas(a.t.Context(), "volume", "list", "--root="+a.root)
		return fmt.Sprint(err)
	}, "<nil>")
}

// until waits until what is said has all that is wanted in it, and returns it.
func (a *appliance) until(what string, says func() string, wants ...string) string {
	a.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		said := says()
		lacks := ""
		for _, want := range wants {
			if !strings.Contains(said, want) {
				lacks = want
			}
		}
		if lacks == "" {
			return said
		}
		if time.Now().After(deadline) {
			a.t.Fatalf("%s: no %q in\n%s", what, lacks, said)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// get returns what is served over HTTP.
func (a *appliance) get(path string) string {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), http.MethodGet, "http://"+a.http+path, http.NoBody)
	mustDo(a.t, err)
	response, err := http.DefaultClient.Do(r)
	mustDo(a.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	mustDo(a.t, err)
	return string(body)
}

// health is what the page says first.
func (a *appliance) health() string {
	_, page, _ := strings.Cut(a.get("/"), `id="health"`)
	health, _, _ := strings.Cut(page, "</section>")
	health = copied.ReplaceAllString(health, "'$1'")
	return html.UnescapeString(strings.ReplaceAll(health, " --root="+a.root+"'", "'"))
}

// copied is a command with its button, which commands have in quotes elsewhere.
var copied = regexp.MustCompile(`<code id="fix-[^"]*">([^<]*)</code> <button [^>]*>Copy</button>`)

// findings are what the metrics count of them.
func (a *appliance) findings() string {
	return strings.Join(regexp.MustCompile(`(?m)^podnas_findings\{.*$`).FindAllString(a.get("/metrics"), -1), "\n")
}

// doctor is what podnas doctor prints, and ends with.
func (a *appliance) doctor() string {
	a.t.Helper()
	out, _, err := podnas(a.t.Context(), "doctor", "--root="+a.root)
	return fmt.Sprintf("%s\nexit code %d", out, exitCode(err))
}

// results are what podnas doctor tells programs is wrong.
func (a *appliance) results() (wrong []doctor.Result) {
	a.t.Helper()
	out, _, _ := podnas(a.t.Context(), "doctor", "--root="+a.root, "-o", "json") // it fails where something is wrong
	var report control.Report
	mustDo(a.t, json.Unmarshal([]byte(out), &report))
	for _, r := range report.Checks {
		if r.Status != doctor.OK {
			wrong = append(wrong, r)
		}
	}
	return wrong
}

// well waits until nothing is wrong, and everybody says so.
func (a *appliance) well() {
	a.t.Helper()
	a.until("podnas doctor, when all is well", a.doctor, "\nNothing is wrong.", "exit code 0")
	a.until("the page, when all is well", a.health, "All is well.")
	a.until("the metrics, when all is well", func() string {
		found := a.findings()
		if regexp.MustCompile(`\} [^0]`).MatchString(found) {
			return "some: " + found
		}
		return "none: " + found
	}, "none: podnas_findings")
}

func (a *appliance) write(file, text string) {
	a.t.Helper()
	mustDo(a.t, os.WriteFile(filepath.Join(a.claims, file), []byte(text), 0o600))
}

// restarted makes a change while podnas does not run.
func (a *appliance) restarted(change func()) {
	a.t.Helper()
	a.stop()
	change()
	a.start()
}

// claim makes a claim, waits for its volume and returns that.
func (a *appliance) claim(size string) (volume string) {
	a.t.Helper()
	a.write("classes.yaml", classText)
	a.write("data.yaml", claimText("podnas", size))
	a.until("the claim gets a volume", func() string {
		found, _ := filepath.Glob(a.claims + "/provisioned/pvc-*.yaml")
		for _, file := range found {
			if strings.Contains(read(a.t, file), "name: data\n") {
				volume = strings.TrimSuffix(filepath.Base(file), ".yaml")
			}
		}
		return volume
	}, "pvc-")
	return volume
}

// fill writes so much into a volume, as a client does.
func (a *appliance) fill(volume string, size int) {
	a.t.Helper()
	client, err := nfstest.Dial(a.t.Context(), a.nfs, a.nfs)
	mustDo(a.t, err)
	defer client.Close()
	mnt, err := client.Mount(a.t.Context(), "/"+volume)
	mustDo(a.t, err)
	made, err := client.Create(a.t.Context(), nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: mnt.Handle, Name: []byte("file")}})
	mustDo(a.t, err)
	written, err := client.Write(a.t.Context(), made.Object, 0, nfs3.FileSync, make([]byte, size))
	if err != nil || written.Status != nfs3.OK {
		a.t.Fatalf("write: %v, %v", written.Status, err)
	}
}

const classText = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: podnas}
provisioner: podnas.io/nfs
allowVolumeExpansion: true
`

func claimText(class, size string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  storageClassName: %s
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: %s}}
`, class, size)
}

// Whatever is wrong, the page, podnas doctor with its exit code, and the metrics all tell
// it, and when it is mended none of them does.
func TestFindings(t *testing.T) {
	for _, tt := range []struct {
		name   string
		hurt   func(a *appliance) (mend func())
		source string
		check  string // which is told, $ stands for the name of a volume, pvc-...
		status doctor.Status
		says   string
	}{
		{"a claim without a class", func(a *appliance) func() {
			a.write("data.yaml", claimText("podnas", "1Mi"))
			return func() { a.write("classes.yaml", classText) }
		}, "claims", "claim default/data", doctor.Failed, "no file in the folder has the StorageClass podnas"},
		{"a class that means nothing", func(a *appliance) func() {
			a.write("classes.yaml", classText+"parameters: {rootSquish: 'true'}\n")
			a.write("data.yaml", claimText("podnas", "1Mi"))
			return func() { a.write("classes.yaml", classText) }
		}, "claims", "claim default/data", doctor.Failed, "did you mean rootSquash?"},
		{"a claim too large", func(a *appliance) func() {
			a.write("classes.yaml", classText)
			a.write("data.yaml", claimText("podnas", "1Pi"))
			return func() { a.write("data.yaml", claimText("podnas", "1Mi")) }
		}, "claims", "claim default/data", doctor.Failed, "1Pi"},
		{"a claim too large to grow", func(a *appliance) func() {
			a.claim("1Mi")
			a.write("data.yaml", claimText("podnas", "1Pi"))
			return func() { a.write("data.yaml", claimText("podnas", "2Mi")) }
		}, "claims", "claim default/data", doctor.Failed, "is free on the disk"},
		{"a claim that is none", func(a *appliance) func() {
			a.write("classes.yaml", classText)
			a.write("data.yaml", claimText("podnas", "lots"))
			return func() { a.write("data.yaml", claimText("podnas", "1Mi")) }
		}, "claims", "file data.yaml", doctor.Failed, "quantities"},
		{"no folder", func(a *appliance) func() {
			mustDo(a.t, os.RemoveAll(a.claims))
			return func() { mustDo(a.t, os.Mkdir(a.claims, 0o755)) }
		}, "claims", "folder CLAIMS", doctor.Failed, "no such file"},
		{"no volume ends", func(a *appliance) func() {
			a.claim("1Mi")
			a.write("data.yaml", "kind: [broken")
			return func() { a.write("data.yaml", claimText("podnas", "1Mi")) }
		}, "claims", "folder CLAIMS", doctor.Warning, "no volume is deleted for now"},
		{"another disk", func(a *appliance) func() {
			a.write("other.yaml", strings.Replace(claimText("podnas", "1Mi"), "name: data", "name: other", 1))
			volume := a.claim("1Mi")
			a.until("both claims have volumes", func() string {
				found, _ := filepath.Glob(a.claims + "/provisioned/pvc-*.yaml")
				return fmt.Sprint(len(found))
			}, "2")
			pv, record := filepath.Join(a.claims, "provisioned", volume+".yaml"), filepath.Join(a.root, ".podnas/volumes", volume+".json")
			was := read(a.t, pv)
			a.restarted(func() {
				mustDo(a.t, os.WriteFile(pv, regexp.MustCompile(`(podnas.io/instance: ).*`).ReplaceAll([]byte(was), []byte("${1}another")), 0o600))
				mustDo(a.t, os.Rename(record, record+".away"))
			})
			return func() {
				a.restarted(func() {
					mustDo(a.t, os.WriteFile(pv, []byte(was), 0o600))
					mustDo(a.t, os.Rename(record+".away", record))
				})
			}
		}, "claims", "claim default/data", doctor.Failed, "mount the right disk"},
		{"a damaged record", func(a *appliance) func() {
			record := filepath.Join(a.root, ".podnas/volumes", a.claim("1Mi")+".json")
			was := read(a.t, record)
			a.restarted(func() { mustDo(a.t, os.Truncate(record, 20)) })
			return func() { a.restarted(func() { mustDo(a.t, os.WriteFile(record, []byte(was), 0o600)) }) }
		}, "disk", ".podnas/volumes/$.json", doctor.Failed, "the record is damaged"},
		{"a doubled record", func(a *appliance) func() {
			record := filepath.Join(a.root, ".podnas/volumes", a.claim("1Mi")+".json")
			double := regexp.MustCompile(`"checksum": ".*",`).ReplaceAllString(read(a.t, record), "")
			double = regexp.MustCompile(`"name": "pvc-.*"`).ReplaceAllString(double, `"name": "double"`)
			file := filepath.Join(a.root, ".podnas/volumes/double.json")
			a.restarted(func() { mustDo(a.t, os.WriteFile(file, []byte(double), 0o600)) })
			return func() { a.restarted(func() { mustDo(a.t, os.Remove(file)) }) }
		}, "disk", ".podnas/volumes/$.json", doctor.Failed, "double.json has the id"},
		{"a full volume", func(a *appliance) func() {
			a.fill(a.claim("1Mi"), 1000<<10)
			return func() { a.write("data.yaml", claimText("podnas", "2Mi")) }
		}, "volumes", "volume default/data", doctor.Failed, "% full: "},
		{"a volume that fills up", func(a *appliance) func() {
			a.fill(a.claim("1Mi"), 900<<10)
			return func() { a.write("data.yaml", claimText("podnas", "2Mi")) }
		}, "volumes", "volume default/data", doctor.Warning, "% full: "},
		{"a volume without its directory", func(a *appliance) func() {
			dir := filepath.Join(a.root, a.claim("1Mi"))
			mustDo(a.t, os.Rename(dir, dir+".away"))
			return func() { mustDo(a.t, os.Rename(dir+".away", dir)) }
		}, "disk", "volume default/data", doctor.Failed, "its directory is missing"},
		{"a stray directory", func(a *appliance) func() {
			mustDo(a.t, os.Mkdir(filepath.Join(a.root, "stray"), 0o755))
			return func() { mustDo(a.t, os.Remove(filepath.Join(a.root, "stray"))) }
		}, "disk", "stray", doctor.Warning, "belongs to no volume"},
		{"a disk that takes no write", func(a *appliance) func() {
			return testdisk.Unwritable(a.t, filepath.Join(a.root, ".podnas/heartbeat"))
		}, "disk", "disk", doctor.Failed, "can't be written to"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			a := newAppliance(t)
			a.well()
			mend := tt.hurt(a)

			var told doctor.Result
			check := regexp.MustCompile("^" + strings.NewReplacer("$", "pvc-[0-9a-f-]+", "CLAIMS", a.claims, ".", `\.`).Replace(tt.check) + "$")
			a.until("podnas doctor, for programs", func() string {
				results := a.results()
				for _, r := range results {
					if check.MatchString(r.Check) && r.Status == tt.status && r.Source == tt.source && strings.Contains(r.Says, tt.says) && r.Fix != "" {
						told = r
						return "found it"
					}
				}
				return fmt.Sprintf("%+v", results)
			}, "found it")
			failed := false
			for _, r := range a.results() {
				failed = failed || r.Status == doctor.Failed
			}
			headline, class, mark, code := "All works. There is something to know.", "notice", "WARNING", 7
			if failed {
				headline, code = "Something is wrong.", 1
			}
			if tt.status == doctor.Failed {
				class, mark = "bad", "FAILED"
			}
			shown, linked := told.Check, told.Check
			if about, ok := strings.CutPrefix(told.Check, "volume "); ok && about == "default/data" {
				if !regexp.MustCompile("^pvc-[0-9a-f-]+$").MatchString(told.Volume) {
					t.Errorf("commands need the name of the volume: %+v", told)
				}
				shown, linked = fmt.Sprintf("%s (%s)", told.Check, told.Volume), fmt.Sprintf(`<a href="/volume/%s">%s</a>`, told.Volume, told.Check)
			}
			a.until("podnas doctor", a.doctor, mark, "\n"+shown+": ", tt.says, "to do: "+told.Fix, fmt.Sprintf("exit code %d", code))
			a.until("the page", a.health, headline, fmt.Sprintf(`<div class="problem %s"><strong>%s</strong>: `, class, linked), tt.says, "To do: "+told.Fix)
			a.until("the metrics", func() string {
				if regexp.MustCompile(fmt.Sprintf(`severity=%q,source=%q\} [1-9]`, tt.status, tt.source)).MatchString(a.findings()) {
					return "counted"
				}
				return a.findings()
			}, "counted")

			mend()
			a.well()
		})
	}
}

// What is for others to do, or takes its time, is no finding.
func TestNoFindings(t *testing.T) {
	a := newAppliance(t)
	a.write("classes.yaml", classText+"---\n"+strings.NewReplacer("name: podnas", "name: other", "podnas.io/nfs", "example.com/nfs").Replace(classText))
	a.write("data.yaml", claimText("other", "1Mi")+"---\n"+strings.Replace(claimText(`""`, "1Mi"), "name: data", "name: static", 1)+
		"---\n"+strings.Replace(claimText("podnas", "1Mi"), "name: data", "name: mine", 1))
	a.until("the claim gets a volume", func() string {
		found, _ := filepath.Glob(a.claims + "/provisioned/pvc-*.yaml")
		return strings.Join(found, " ")
	}, "pvc-")
	a.well()
}

// What is wrong with a volume is told with its name, which commands need, also if its claim's ends in that.
func TestResultsNameVolumes(t *testing.T) {
	for _, tt := range []struct{ check, volume, want string }{
		{"volume vol", "vol", "\nvolume vol: full\n"},
		{"volume team/data", "vol", "\nvolume team/data (vol): full\n"},
		{"volume team/vol", "vol", "\nvolume team/vol (vol): full\n"},
		{"disk", "", "\ndisk: full\n"},
	} {
		var out bytes.Buffer
		mustDo(t, printResults(&out, false, []doctor.Result{{Check: tt.check, Volume: tt.volume, Status: doctor.Failed, Says: "full"}}))
		if !strings.Contains(out.String(), tt.want) {
			t.Errorf("%q lacks %q", &out, tt.want)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	mustDo(t, err)
	return string(data)
}
