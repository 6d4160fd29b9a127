package standalone

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/podnas/podnas/internal/doctor"
)

// deleting is a class whose volumes are gone for good with their claims.
const deleting = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: deleting}
provisioner: podnas.io/nfs
reclaimPolicy: Delete
allowVolumeExpansion: true
`

// object is a claim as YAML in block style, with a line feed at its end.
func object(name, size string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: %s
spec:
  storageClassName: deleting
  accessModes:
  - ReadWriteMany
  resources:
    requests:
      storage: %s
`, name, size)
}

// jsonObject is a claim as kubectl prints it.
func jsonObject(name, size string) string {
	return fmt.Sprintf(`{
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {
        "name": %q
    },
    "spec": {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": %q}},
        "storageClassName": "deleting"
    }
}
`, name, size)
}

// indented is text with two more spaces before each line, and "- " before the first.
func indented(text string) string {
	return "- " + strings.TrimSuffix(strings.ReplaceAll(text, "\n", "\n  "), "  ")
}

// A file with two claims is written again in another form. Either both are understood, or
// the file is refused with its line; no claim is ever taken for a removed one.
func TestForms(t *testing.T) {
	one, two := object("one", "2Mi"), object("two", "2Mi")
	jsonOne, jsonTwo := jsonObject("one", "2Mi"), jsonObject("two", "2Mi")
	configMap := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {1: a, yes: b}\n"
	untyped := func(object string) string { return strings.Join(strings.SplitAfter(object, "\n")[2:], "") }
	crlf := func(text string) string { return strings.ReplaceAll(text, "\n", "\r\n") }
	utf16le := func(text string) string {
		b := []byte{0xff, 0xfe}
		for _, u := range utf16.Encode([]rune(text)) {
			b = append(b, byte(u), byte(u>>8))
		}
		return string(b)
	}
	for _, tt := range []struct {
		name, file, text string
		want             string // in the file's error; "": it is understood
	}{
		{"lines of ---", "claims.yaml", one + "---\n" + two, ""},
		{"documents that end with ...", "claims.yaml", one + "...\n---\n" + two + "...\n", ""},
		{"... alone between documents", "claims.yaml", one + "...\n" + two + "...\n", "line 12"},
		{"... with a comment", "claims.yaml", one + "... # end\n---\n" + two, ""},
		{"--- before the first and after the last", "claims.yaml", "---\n" + one + "---\n" + two + "---\n", ""},
		{"--- on the last line, without its end", "claims.yaml", one + "---\n" + two + "---", ""},
		{"--- with a comment", "claims.yaml", one + "--- # the second\n" + two, ""},
		{"--- with spaces", "claims.yaml", one + "---   \n" + two, ""},
		{"--- with an object after it", "claims.yaml", one + "--- {" + strings.Split(jsonTwo, "{\n")[1] + strings.Join(strings.Split(jsonTwo, "{\n")[2:], "{\n"), "line"},
		{"--- with text after it", "claims.yaml", one + "--- two\n" + two, "line 13"},
		{"--- without a space before text", "claims.yaml", one + "---apiVersion: v1\n" + strings.SplitN(two, "\n", 2)[1], "kind stands twice, in line 13"},
		{"the same after an object that is passed over", "claims.yaml", configMap + "---apiVersion: v1\n" + strings.SplitN(two, "\n", 2)[1], "kind stands twice, in line 6"},
		{"no line between an object that is passed over and a claim", "claims.yaml", configMap + two, "apiVersion stands twice, in line 5"},
		{"--- that is indented", "claims.yaml", one + " ---\n" + two, "line"},
		{"---- of four", "claims.yaml", one + "----\n" + two, "line"},
		{"an empty second document", "claims.yaml", one + "---\n---\n" + two, ""},
		{"documents of comments", "claims.yaml", "# a\n---\n# b\n" + one + "---\n# c\n---\n" + two + "---\n# d\n", ""},
		{"a byte order mark", "claims.yaml", byteOrderMark + one + "---\n" + two, ""},
		{"a byte order mark before JSON", "claims.json", byteOrderMark + jsonOne + jsonTwo, ""},
		{"a byte order mark in each of two files put together", "claims.yaml", byteOrderMark + one + "---\n" + byteOrderMark + two, "the object at line 13: apiVersion or kind is missing"},
		{"a byte order mark before a line of ---", "claims.yaml", one + byteOrderMark + "---\n" + two, "line"},
		{"UTF-16, as PowerShell redirects", "claims.yaml", utf16le(one + "---\n" + two), ""},
		{"UTF-16 that is cut", "claims.yaml", utf16le(one + "---\n" + two)[:301], "UTF-16"},
		{"CRLF", "claims.yaml", crlf(one + "---\n" + two), ""},
		{"CRLF and ...", "claims.yaml", crlf(one + "...\n---\n" + two), ""},
		{"CR", "claims.yaml", strings.ReplaceAll(one+"---\n"+two, "\n", "\r"), ""},
		{"tabs", "claims.yaml", one + "---\n" + strings.ReplaceAll(two, "  name", "\tname"), "line"},
		{"tabs in JSON", "claims.json", strings.ReplaceAll(jsonOne+jsonTwo, "    ", "\t"), ""},
		{"zeros at the end", "claims.yaml", one + "---\n" + two + "\x00\x00\x00", "control characters"},
		{"zeros for the second", "claims.yaml", one + "---\n" + strings.Repeat("\x00", len(two)), "control characters"},
		{"two JSON objects", "claims.json", jsonOne + jsonTwo, ""},
		{"two JSON objects in a .yaml", "claims.yaml", jsonOne + jsonTwo, ""},
		{"two JSON objects in one line", "claims.json", strings.ReplaceAll(jsonOne+jsonTwo, "\n", ""), ""},
		{"two JSON objects with --- between", "claims.yaml", jsonOne + "---\n" + jsonTwo, ""},
		{"JSON objects after ---", "claims.yaml", "---\n" + jsonOne + jsonTwo, "line 13"},
		{"a JSON array", "claims.json", "[" + jsonOne + "," + jsonTwo + "]", "it is no object"},
		{"JSON that is cut", "claims.json", (jsonOne + jsonTwo)[:len(jsonOne)+100], "line 17: unexpected EOF"},
		{"JSON with a bracket too much", "claims.json", jsonOne + jsonTwo + "}", "line 25"},
		{"JSON and then text", "claims.json", jsonOne + "two", "line 13"},
		{"JSON and then YAML", "claims.yaml", jsonOne + two, "line 13"},
		{"JSON and then a word that is JSON", "claims.json", jsonOne + "null\n", "line 13: it is no object"},
		{"JSON with a key twice", "claims.json", strings.Replace(jsonOne, `"spec"`, `"kind": "ConfigMap", "spec"`, 1) + jsonTwo, "kind stands twice, in line 7"},
		{"JSON with a key twice, further in", "claims.json", strings.Replace(jsonOne, `"name"`, `"name": "one", "name"`, 1) + jsonTwo, "line 5"},
		{"JSON with surrogates", "claims.json", strings.Replace(jsonOne, `"name"`, `"annotations": {"a": "\ud83d\ude00\/"}, "name"`, 1) + jsonTwo, ""},
		{"a JSON object that is deep, after another", "claims.json", jsonOne + strings.Repeat(`{"a":`, 1e6), "levels deep"},
		{"JSON that is deep", "claims.json", strings.Repeat(`{"a":`, 1e6), "depth"},
		{"YAML that is deep", "claims.yaml", strings.Repeat(`[`, 1e6), "depth"},
		{"a list", "claims.yaml", "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: \"\"}\nitems:\n" + indented(one) + indented(configMap) + indented(two), ""},
		{"a list in JSON", "claims.json", `{"kind": "List", "apiVersion": "v1", "items": [` + jsonOne + "," + jsonTwo + "]}", ""},
		{"a list in a list, and a document after it", "claims.yaml", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n  items:\n  " + strings.ReplaceAll(indented(one), "\n", "\n  ") + "\n---\n" + two, ""},
		{"a list of claims", "claims.yaml", "apiVersion: v1\nkind: PersistentVolumeClaimList\nitems:\n" + indented(untyped(one)) + indented(two), ""},
		{"a list of claims with a class", "claims.yaml", "apiVersion: v1\nkind: PersistentVolumeClaimList\nitems:\n" + indented(one) + indented(deleting), "in a list of PersistentVolumeClaim"},
		{"a list with an item without a kind", "claims.yaml", "apiVersion: v1\nkind: List\nitems:\n" + indented(one) + indented(untyped(two)), "the object at line 15: apiVersion or kind is missing"},
		{"a list with an item that is refused", "claims.yaml", "apiVersion: v1\nkind: List\nitems:\n" + indented(one) + indented(strings.Replace(two, "accessModes", "accessMode", 1)), `the object at line 15: json: unknown field "accessMode"`},
		{"a list with a field too much", "claims.yaml", "apiVersion: v1\nkind: List\nitem: []\nitems:\n" + indented(one) + indented(two), `unknown field "item"`},
		{"a list of another field", "claims.yaml", "apiVersion: v1\nkind: List\nitem:\n" + indented(one) + indented(two), "it has no items"},
		{"a list with its items twice", "claims.yaml", "apiVersion: v1\nkind: List\nitems:\n" + indented(one) + "items:\n" + indented(two), "already defined"},
		{"a list with an alias", "claims.yaml", "apiVersion: v1\nkind: List\nitems:\n" + strings.Replace(indented(one), "- ", "- &one\n  ", 1) + "- *one\n", "it is no object"},
		{"a list of version 2", "claims.yaml", "apiVersion: v2\nkind: List\nitems:\n" + indented(one) + indented(two), "unknown kind List"},
		{"an empty list", "claims.yaml", "apiVersion: v1\nkind: List\nitems: []\n", "the file is empty"},
		{"an anchor in one document", "claims.yaml", strings.Replace(one, "storage: 2Mi", "storage: &size 2Mi\n    limits:\n      storage: *size", 1) + "---\n" + two, ""},
		{"an anchor across documents", "claims.yaml", strings.Replace(one, "2Mi", "&size 2Mi", 1) + "---\n" + strings.Replace(two, "2Mi", "*size", 1), "line 23: the anchor of *size is in another document"},
		{"an alias of nothing", "claims.yaml", one + "---\n" + strings.Replace(two, "2Mi", "*size", 1), "unknown anchor"},
		{"aliases that grow", "claims.yaml", one + "---\na0: &a0 [x,x,x,x,x,x,x,x,x]\n" + growing(9) + two, "excessive aliasing"},
		{"an object that contains itself", "claims.yaml", one + "---\n" + strings.Replace(two, "metadata:", "metadata: &m\n  labels: *m", 1), "contains itself"},
		{"a comment that is long", "claims.yaml", one + "---\n" + two + "# " + strings.Repeat("x", 1<<20), ""},
		{"a file of 20 MB", "claims.yaml", one + "---\n" + two + "# " + strings.Repeat("x", 20e6), "larger than 16Mi"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.write("class.yaml", deleting)
			b.write("claims.yaml", object("one", "1Mi")+"---\n"+object("two", "1Mi"))
			b.scans(1)
			before := b.fill("one", "two")
			b.write("claims.yaml", tt.text)
			if tt.file != "claims.yaml" {
				b.write(tt.file, tt.text)
				b.remove("claims.yaml")
			}
			b.scans(4)
			b.checkFilled(before)
			size := "2Mi" // the other form is read
			if tt.want != "" {
				size = "1Mi"
			}
			for name, pv := range b.pvs() {
				if pv.Name != before[name] || pv.Spec.Capacity.Storage().String() != size {
					t.Errorf("claim %s has %s of %s, want %s of %s; log:\n%s", name, pv.Name, pv.Spec.Capacity.Storage(), before[name], size, &b.logs)
				}
			}
			b.checkRefused(tt.file, tt.want)

			// In a new folder it makes two volumes, or none.
			b = newBench(t)
			b.write("class.yaml", deleting)
			b.write(tt.file, tt.text)
			b.scans(2)
			want := 2
			if tt.want != "" {
				want = 0
			}
			if n := len(b.store.List()); n != want {
				t.Errorf("in a new folder: %d volumes, want %d; log:\n%s", n, want, &b.logs)
			}
		})
	}
}

// growing is fields of which each has nine aliases of the one before.
func growing(n int) string {
	text := ""
	for i := range n {
		text += fmt.Sprintf("a%d: &a%[1]d [%s*a%d]\n", i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 8), i)
	}
	return text
}

// fill writes a file into the volumes of claims, and returns the volumes' names.
func (b *bench) fill(claims ...string) map[string]string {
	b.t.Helper()
	volumes := map[string]string{}
	pvs := b.pvs()
	for _, claim := range claims {
		if pvs[claim] == nil {
			b.t.Fatalf("claim %s has no volume; log:\n%s", claim, &b.logs)
		}
		volumes[claim] = pvs[claim].Name
		if err := os.WriteFile(filepath.Join(b.Root, pvs[claim].Name, "file"), []byte(claim), 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
	return volumes
}

// checkFilled makes sure that each volume has its file, and that there is no other volume.
func (b *bench) checkFilled(volumes map[string]string) {
	b.t.Helper()
	for claim, name := range volumes {
		if data, err := os.ReadFile(filepath.Join(b.Root, name, "file")); string(data) != claim {
			b.t.Errorf("the file of claim %s has %q, %v; log:\n%s", claim, data, err, &b.logs)
		}
	}
	if n := len(b.store.List()); n != len(volumes) {
		b.t.Errorf("%d volumes, want %d; log:\n%s", n, len(volumes), &b.logs)
	}
}

// checkRefused makes sure that a file's problem, and no other, is in the log and among the
// findings; none if want is empty.
func (b *bench) checkRefused(file, want string) {
	b.t.Helper()
	log := b.logs.String()
	if want == "" {
		if strings.Contains(log, "level=ERROR") || strings.Contains(log, "level=WARN") {
			b.t.Errorf("log:\n%s", log)
		}
		return
	}
	found := false
	for _, r := range b.Findings() {
		found = found || r.Status == doctor.Failed && r.Check == "file "+file && strings.Contains(r.Says, want)
	}
	if !found {
		b.t.Errorf("%q is not among the findings: %+v", want, b.Findings())
	}
	if strings.Count(log, "level=ERROR") != 1 || !strings.Contains(log, "file "+file) {
		b.t.Errorf("log:\n%s", log)
	}
}

// What stands in the place of a claim's file is no removed claim.
func TestInPlaceOfAFile(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(b *bench)
		want   string // in the error of claims.yaml; "": both are there
	}{
		{"a folder", func(b *bench) { b.remove("claims.yaml"); b.mkdir("claims.yaml") }, "a folder, not a regular file"},
		{"a folder with the file in it", func(b *bench) {
			b.remove("claims.yaml")
			b.mkdir("claims.yaml")
			b.write("claims.yaml/claims.yaml", object("one", "1Mi"))
		}, "a folder, not a regular file"},
		{"a link to a folder", func(b *bench) { b.remove("claims.yaml"); b.mkdir("d"); b.link("d", "claims.yaml") }, "a folder, not a regular file"},
		{"a link to nothing", func(b *bench) { b.remove("claims.yaml"); b.link("nothing", "claims.yaml") }, "no such file"},
		{"a link to itself", func(b *bench) { b.remove("claims.yaml"); b.link("claims.yaml", "claims.yaml") }, "too many levels"},
		{"a link to the file", func(b *bench) {
			b.rename("claims.yaml", ".claims")
			b.link(".claims", "claims.yaml")
		}, ""},
		{"two files", func(b *bench) {
			b.write("one.yml", object("one", "1Mi"))
			b.write("two.json", jsonObject("two", "1Mi"))
			b.remove("claims.yaml")
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.write("class.yaml", deleting)
			b.write("claims.yaml", object("one", "1Mi")+"---\n"+object("two", "1Mi"))
			b.scans(1)
			before := b.fill("one", "two")
			tt.change(b)
			b.scans(4)
			b.checkFilled(before)
			b.checkRefused("claims.yaml", tt.want)
		})
	}
}

func (b *bench) mkdir(name string) {
	b.t.Helper()
	if err := os.Mkdir(filepath.Join(b.Claims, name), 0o700); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) rename(from, to string) {
	b.t.Helper()
	if err := os.Rename(filepath.Join(b.Claims, from), filepath.Join(b.Claims, to)); err != nil {
		b.t.Fatal(err)
	}
}

// A mounted ConfigMap changes by a link that is swapped.
func TestConfigMapSwap(t *testing.T) {
	b := newBench(t)
	b.write("class.yaml", deleting)
	b.mkdir("..1")
	b.write("..1/claims.yaml", object("one", "1Mi")+"---\n"+object("two", "1Mi"))
	b.link("..1", "..data")
	b.link("..data/claims.yaml", "claims.yaml")
	b.scans(2)
	before := b.fill("one", "two")
	for i, text := range []string{object("two", "2Mi") + "...\n---\n" + object("one", "2Mi"), jsonObject("one", "3Mi") + jsonObject("two", "3Mi")} {
		next := fmt.Sprintf("..%d", i+2)
		b.mkdir(next)
		b.write(next+"/claims.yaml", text)
		b.link(next, "..tmp")
		b.rename("..tmp", "..data")
		b.scans(3)
		b.checkFilled(before)
		if got, want := b.pvs()["one"].Spec.Capacity.Storage().String(), fmt.Sprintf("%dMi", i+2); got != want {
			t.Errorf("%s after the swap, want %s; log:\n%s", got, want, &b.logs)
		}
	}
	b.checkRefused("claims.yaml", "")
}

// A claim that is in two files is neither changed nor removed, and both are named. Other
// claims are served.
func TestClaimInTwoFiles(t *testing.T) {
	for _, tt := range []struct{ name, file, text, want string }{
		{"two files", "b.yaml", object("one", "2Mi"), "in a.yaml (line 1) and b.yaml (line 1)"},
		{"one file", "a.yaml", object("one", "1Mi") + "---\n" + object("one", "2Mi"), "in a.yaml (line 1) and a.yaml (line 13)"},
		{"the same", "b.yaml", object("one", "1Mi"), "in a.yaml (line 1) and b.yaml (line 1)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.write("class.yaml", deleting)
			b.write("a.yaml", object("one", "1Mi"))
			b.write("other.yaml", object("other", "1Mi"))
			b.scans(1)
			before := b.fill("one", "other")
			b.write(tt.file, tt.text)
			b.remove("other.yaml")
			b.write("new.yaml", object("new", "1Mi"))
			b.scans(3)
			before["new"] = b.fill("new")["new"]
			b.checkFilled(before)
			if got := b.pvs()["one"].Spec.Capacity.Storage().String(); got != "1Mi" {
				t.Errorf("it was changed to %s", got)
			}
			if n := strings.Count(b.logs.String(), tt.want); n != 1 {
				t.Errorf("told %d times:\n%s", n, &b.logs)
			}
			b.write("a.yaml", object("one", "1Mi"))
			if tt.file != "a.yaml" {
				b.remove(tt.file)
			}
			b.scans(3) // it is mended, and what was removed goes
			delete(before, "other")
			b.checkFilled(before)
		})
	}
}

// A file that is written slowly has its first documents only for a while. No claim is taken
// for a removed one as long as a file changes, however long that takes.
func TestSlowFile(t *testing.T) {
	b := newBench(t)
	b.write("class.yaml", deleting)
	b.write("claims.yaml", object("one", "1Mi")+"---\n"+object("two", "1Mi"))
	b.scans(1)
	before := b.fill("one", "two")
	text := object("one", "1Mi") + "---\n"
	for i := range 10 {
		b.write("claims.yaml", text)
		text += "# more\n"
		b.scans(1)
		b.checkFilled(before)
		if _, gone := b.gone["default/two"]; i > 0 && !gone {
			t.Fatal("it is not even missed")
		}
	}
	// It moves to a file that is written slowly, too.
	b.write("claims.yaml", object("one", "1Mi"))
	for i := range 10 {
		b.write("two.yaml", "# a\n"+configMapText+strings.Repeat("# more\n", i))
		b.scans(1)
	}
	b.write("two.yaml", object("two", "1Mi"))
	b.scans(3)
	b.checkFilled(before)
	b.remove("two.yaml")
	b.scans(2)
	delete(before, "two")
	b.checkFilled(before)
}

const configMapText = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"

// A file that has just changed is not read: a claim that is cut may be another one, without its
// volumeName or with another class. No other claim is missed meanwhile.
func TestUnsettledFile(t *testing.T) {
	b := newBench(t)
	b.write("class.yaml", deleting)
	b.write("claims.yaml", object("one", "1Mi"))
	b.scans(1)
	before := b.fill("one")
	b.settle = time.Hour
	b.write("claims.yaml", "kind: [broken")
	b.write("two.yaml", object("two", "1Mi"))
	b.scans(unsureMax)
	b.checkFilled(before)
	if b.unsure != unsureMax || b.restful() || len(b.gone) > 0 {
		t.Errorf("unsure: %d, restful: %t, gone: %v", b.unsure, b.restful(), b.gone)
	}
	b.checkRefused("claims.yaml", "")
	// If it changes all the time, it is read as it is in the end.
	b.scans(1)
	before["two"] = b.fill("two")["two"]
	b.checkFilled(before)
	b.checkRefused("claims.yaml", "line 1")
}

// A claim must be seen missing all the time: while the folder can't be read nobody knows.
func TestFolderAwayForAMoment(t *testing.T) {
	b := newBench(t)
	b.write("class.yaml", deleting)
	b.write("claims.yaml", object("one", "1Mi"))
	b.scans(1)
	before := b.fill("one")
	b.remove("claims.yaml")
	b.scans(1)
	for range 3 {
		if err := os.Rename(b.Claims, b.Claims+"-away"); err != nil {
			t.Fatal(err)
		}
		b.scans(2)
		if err := os.Rename(b.Claims+"-away", b.Claims); err != nil {
			t.Fatal(err)
		}
		b.scans(1)
		b.checkFilled(before)
	}
	b.scans(1)
	b.checkFilled(map[string]string{})
}

// Over a disk whose claims are all missing in the folder, which may be the wrong one, nothing is
// deleted, and it is told how to go on.
func TestStrangeFolder(t *testing.T) {
	for _, tt := range []struct {
		name string
		// goOn is what a person does about it.
		goOn func(b *bench, volumes map[string]string)
		left []string // claims whose volumes are there after it
	}{
		{"nothing is done", func(*bench, map[string]string) {}, []string{"one", "two", "new"}},
		{"one claim is put back", func(b *bench, _ map[string]string) { b.write("back.yaml", object("two", "1Mi")) }, []string{"two", "new"}},
		{"their volumes are deleted by command", func(b *bench, volumes map[string]string) {
			for _, name := range volumes {
				if err := b.store.Delete(b.t.Context(), name); err != nil {
					b.t.Fatal(err)
				}
			}
		}, []string{"new"}},
		{"one of them is deleted by command", func(b *bench, volumes map[string]string) {
			if err := b.store.Delete(b.t.Context(), volumes["one"]); err != nil {
				b.t.Fatal(err)
			}
		}, []string{"two", "new"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.write("class.yaml", deleting)
			b.write("claims.yaml", object("one", "1Mi")+"---\n"+object("two", "1Mi"))
			b.scans(1)
			before := b.fill("one", "two")
			b.remove("claims.yaml")
			b.write("new.yaml", object("new", "1Mi")) // a claim that gets a volume now is no sign
			b.restart()
			b.settle = time.Hour // at the first look some files may still be written
			b.scans(1)
			b.settle = 0
			b.scans(4)
			all := map[string]string{"one": before["one"], "two": before["two"], "new": b.fill("new")["new"]}
			b.checkFilled(all)
			for _, want := range []string{"default/one, default/two", b.Claims, "right --claims", "podnas volume delete --force " + before["one"]} {
				if n := strings.Count(b.logs.String(), want); n != 1 {
					t.Errorf("%q is told %d times:\n%s", want, n, &b.logs)
				}
			}
			if r := b.Findings()[0]; r.Status != doctor.Warning || !strings.Contains(r.Says, "no volume is deleted for now") || !strings.Contains(r.Fix, "--claims") {
				t.Errorf("findings: %+v", b.Findings())
			}
			tt.goOn(b, before)
			b.scans(4)
			left := map[string]string{}
			for _, claim := range tt.left {
				left[claim] = all[claim]
			}
			b.checkFilled(left)
		})
	}
}

func TestCheckFolder(t *testing.T) {
	dir := t.TempDir()
	if err := CheckFolder(dir); err != nil {
		t.Errorf("a folder: %v", err)
	}
	r := Runner{Claims: dir + "/missing"}
	if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "does not exist: correct --claims") {
		t.Errorf("no folder: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("made %v, %v", entries, err)
	}
}
