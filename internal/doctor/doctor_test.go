package doctor

import (
	"context"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Every check is told of, in the order of the list, whatever becomes of the others.
func TestRun(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	begin := time.Now()
	results := run(t.Context(), []Check{
		One("good", func(context.Context) Result { return Good("all %d are there", 3) }),
		One("hangs", func(context.Context) Result { <-hang; return Good("") }),
		One("minds its context", func(ctx context.Context) Result { <-ctx.Done(); return Fail("wait", "cut off") }),
		One("breaks", func(context.Context) Result { panic("oops") }),
		{Name: "several", Run: func(context.Context) []Result {
			return []Result{Warn("do this", "soon"), {Check: "volume a", Status: Failed, Says: "gone", Fix: "do that"}}
		}},
		{Name: "nothing to say", Run: func(context.Context) []Result { return nil }},
	}, 200*time.Millisecond)
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("the checks took %s", took)
	}
	if len(results) != 6 {
		t.Fatalf("%d results: %+v", len(results), results)
	}
	if r := results[3]; r.Check != "breaks" || r.Status != Failed || !strings.Contains(r.Says, "oops") {
		t.Errorf("a check that panics: %+v", r)
	}
	results[3] = Result{}
	want := []Result{
		{Check: "good", Status: OK, Says: "all 3 are there"},
		{Check: "hangs", Status: Failed, Says: "no answer within 200ms"},
		{Check: "minds its context", Status: Failed, Says: "cut off", Fix: "wait"},
		{},
		{Check: "several", Status: Warning, Says: "soon", Fix: "do this"},
		{Check: "volume a", Status: Failed, Says: "gone", Fix: "do that"},
	}
	if !reflect.DeepEqual(results, want) {
		t.Errorf("got  %+v\nwant %+v", results, want)
	}
	for status, want := range map[Status]int{OK: 1, Warning: 1, Failed: 3} {
		if got := Count(results, status); got != want {
			t.Errorf("%s: %d, want %d", status, got, want)
		}
	}
}

const mountinfo = `21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
30 21 0:30 / /proc rw,nosuid - proc proc rw
40 21 8:17 / /export ro,noatime shared:5 - xfs /dev/sdb1 rw,attr2,prjquota
41 40 0:50 / /export/sub rw - tmpfs tmpfs rw
42 21 0:51 /vol /mnt/with\040space rw,relatime - nfs 10.0.0.1:/vol rw,vers=3,hard,timeo=600,local_lock=all
43 21 0:60 / /twice rw - tmpfs tmpfs rw
44 21 0:61 / /twice rw - ext4 /dev/sdc rw
this is no mount
`

func TestParseMounts(t *testing.T) {
	for _, tt := range []struct{ path, point, kind string }{
		{"/", "/", "ext4"},
		{"/home/me", "/", "ext4"},
		{"/export", "/export", "xfs"},
		{"/export/volume", "/export", "xfs"},
		{"/export/subtle", "/export", "xfs"},
		{"/export/sub/x", "/export/sub", "tmpfs"},
		{"/mnt/with space/x", "/mnt/with space", "nfs"},
		{"/twice", "/twice", "ext4"},
	} {
		m, ok := parseMounts(mountinfo, tt.path)
		if !ok || m.Point != tt.point || m.Type != tt.kind {
			t.Errorf("%s: %+v, %v, want %s on %s", tt.path, m, ok, tt.kind, tt.point)
		}
	}
	if _, ok := parseMounts("", "/"); ok {
		t.Error("found a mount in nothing")
	}
	m, _ := parseMounts(mountinfo, "/export")
	if !m.Has("ro") || !m.Has("prjquota") || m.Has("prj") || m.String() != "xfs (ro,noatime,rw,attr2,prjquota)" {
		t.Errorf("options %q", m)
	}
	m, _ = parseMounts(mountinfo, "/mnt/with space")
	if m.Source != "10.0.0.1:/vol" || !m.Has("timeo=600") || m.Has("timeo") {
		t.Errorf("the NFS is %+v", m)
	}
	if m, err := FindMount(t.TempDir()); err != nil || m.Type == "" {
		t.Errorf("the temporary directory is on %+v, %v", m, err)
	}
	if _, err := FindMount(t.TempDir() + "/nothing"); err == nil {
		t.Error("found the mount of what is not there")
	}
}

// A check that hangs is made once, however often podnas doctor is run, and the others
// are made each time.
func TestShared(t *testing.T) { synctest.Test(t, testShared) }

func testShared(t *testing.T) {
	hang := make(chan struct{})
	var hangs, fine, breaks atomic.Int64
	checks := []Check{
		One("hangs", func(context.Context) Result { hangs.Add(1); <-hang; return Good("back") }),
		One("fine", func(context.Context) Result { fine.Add(1); return Good("fine") }),
		One("breaks", func(context.Context) Result { breaks.Add(1); panic("oops") }),
	}
	for i := range checks {
		checks[i].Run, _ = share(checks[i].Run)
	}
	for n := range int64(5) {
		r := run(t.Context(), checks, 100*time.Millisecond)
		if len(r) != 3 || r[0].Check != "hangs" || r[0].Status != Failed || !strings.HasPrefix(r[0].Says, "no answer for ") ||
			r[1].Says != "fine" || r[2].Status != Failed || !strings.Contains(r[2].Says, "oops") {
			t.Fatalf("%+v", r)
		}
		if hangs.Load() != 1 || fine.Load() != n+1 || breaks.Load() != n+1 {
			t.Errorf("after %d runs: %d, %d and %d", n+1, hangs.Load(), fine.Load(), breaks.Load())
		}
	}
	close(hang)
	if r := run(t.Context(), checks, 10*time.Second); r[0].Says != "back" {
		t.Errorf("%+v", r)
	}
}
