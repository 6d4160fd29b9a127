package volume

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/podnas/podnas/quota"
)

// passes is a kernel that tells how it was asked.
type passes struct {
	*kernel
	all, single int
}

func (p *passes) Usage(id uint32) (quota.Usage, error) {
	p.single++
	return p.kernel.Usage(id)
}

func (p *passes) Usages() (map[uint32]quota.Usage, error) {
	p.all++
	return p.kernel.Usages()
}

// counted is the server's count of each volume, by name.
type counted map[string]quota.Usage

func (c counted) SetLimit(Volume)            {}
func (c counted) Usage(v Volume) quota.Usage { return c[v.Name] }

// openOver opens a Store over a kernel that may be nil.
func openOver(t *testing.T, root string, q projects, choice quota.Choice, c Counter) *Store {
	t.Helper()
	s, err := newStore(Config{Root: root, Exports: &exports{}, Quota: choice, Counter: c, Log: slog.New(slog.DiscardHandler)})
	mustDo(t, err)
	s.quota = q
	s, err = s.open(root)
	mustDo(t, err)
	return s
}

// However many volumes there are, the kernel is asked once for what they all use:
// at the start, for the metrics, and by the doctor.
func TestUsagesInOnePass(t *testing.T) {
	const volumes = 50
	root, k := t.TempDir(), &passes{kernel: newKernel(t)}
	choice := quota.Choice{Projects: &quota.Projects{}, Reason: "this test's kernel"}
	s := openOver(t, root, k, choice, nil)
	for i := range volumes {
		_, err := s.Create(t.Context(), Spec{Name: fmt.Sprint("v", i), Size: 1 << 20})
		mustDo(t, err)
	}
	mustDo(t, s.Close())
	for _, look := range []struct {
		what string
		do   func()
	}{
		{"Open", func() {
			s = openOver(t, root, k, choice, nil)
			t.Cleanup(func() { mustDo(t, s.Close()) })
		}},
		{"Usages", func() {
			usages, err := s.Usages(s.List())
			mustDo(t, err)
			for i := range volumes {
				if u := usages[fmt.Sprint("v", i)]; u != (quota.Usage{Bytes: 4096, Inodes: 1, Limit: quota.Limit{Bytes: 1 << 20, Inodes: 1024}}) {
					t.Errorf("volume %d uses %+v", i, u)
				}
			}
			if len(usages) != volumes {
				t.Errorf("%d usages of %d volumes", len(usages), volumes)
			}
		}},
		{"Check", func() {
			findings, err := s.Check()
			mustDo(t, err)
			if len(findings) != 0 {
				t.Errorf("found %v", findings)
			}
		}},
	} {
		k.all, k.single = 0, 0
		look.do()
		if k.all != 1 || k.single != 0 {
			t.Errorf("%s reads %d times all usage and %d times that of one project, want once and never", look.what, k.all, k.single)
		}
	}
}

// A limit that is another on the disk is put right at the start, and found before.
func TestDriftedLimit(t *testing.T) {
	root, k := t.TempDir(), newKernel(t)
	s := openOver(t, root, k, quota.Choice{}, nil)
	v, err := s.Create(t.Context(), Spec{Name: "v", Size: 1 << 20})
	mustDo(t, err)
	mustDo(t, k.SetLimit(v.Project, quota.Limit{Bytes: 5 << 20, Inodes: 1024}))
	findings, err := s.Check()
	mustDo(t, err)
	if len(findings) != 1 || findings[0].Problem != "its limit on the disk is 5Mi, not 1Mi" {
		t.Errorf("found %v", findings)
	}
	mustDo(t, s.Close())
	s = openOver(t, root, k, quota.Choice{}, nil)
	defer s.Close()
	if u, err := k.Usage(v.Project); err != nil || u.Limit != v.limit() {
		t.Errorf("after a start: %+v, %v", u, err)
	}
}

// What enforces a volume's size, if it was something else when the volume was created.
func TestQuotaOfAVolume(t *testing.T) {
	kernel := quota.Choice{Projects: &quota.Projects{}, Reason: "by the kernel"}
	server := quota.Choice{Server: true, Reason: "by the server"}
	off := quota.Choice{Reason: "as requested"}
	for _, tt := range []struct {
		name    string
		choice  quota.Choice
		counter Counter
		project uint32
		want    quota.Mode
		reason  string // of the choice, or of the volume's own
	}{
		{"kernel", kernel, counted{}, 1, quota.Kernel, kernel.Reason},
		{"kernel, but without a project", kernel, counted{}, 0, quota.Server, ""},
		{"kernel, without a project and a count", kernel, nil, 0, quota.Off, ""},
		{"server", server, counted{}, 0, quota.Server, server.Reason},
		{"server, with a project", server, counted{}, 1, quota.Server, server.Reason},
		{"off", off, nil, 0, quota.Off, off.Reason},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &Store{choice: tt.choice, counter: tt.counter}
			mode, reason := s.Quota(&Volume{Project: tt.project})
			if mode != tt.want || tt.reason != "" && reason != tt.reason || tt.reason == "" && (reason == "" || reason == tt.choice.Reason) {
				t.Errorf("%s: %q, want %s: %q", mode, reason, tt.want, tt.reason)
			}
		})
	}
}

// The server's counts are told of volumes without a project, beside the kernel's.
func TestUsagesOfBoth(t *testing.T) {
	root, k := t.TempDir(), newKernel(t)
	old := openOver(t, root, nil, quota.Choice{Server: true}, counted{})
	_, err := old.Create(t.Context(), Spec{Name: "old", Size: 1 << 20})
	mustDo(t, err)
	mustDo(t, old.Close())
	s := openOver(t, root, k, quota.Choice{Projects: &quota.Projects{}}, counted{"old": {Bytes: 8192, Limit: quota.Limit{Bytes: 1 << 20}, Inodes: 2}})
	defer s.Close()
	_, err = s.Create(t.Context(), Spec{Name: "new", Size: 2 << 20})
	mustDo(t, err)
	usages, err := s.Usages(s.List())
	mustDo(t, err)
	if len(usages) != 2 || usages["old"].Bytes != 8192 || usages["new"].Limit.Bytes != 2<<20 {
		t.Errorf("usages: %+v", usages)
	}
	for name, want := range usages {
		if u, err := s.Usage(name); err != nil || u != want {
			t.Errorf("%s alone: %+v, %v, want %+v", name, u, err, want)
		}
	}
}

// What is kept of a deleted volume still counts under its project, where the kernel counts.
func TestKeptUsage(t *testing.T) {
	choice := quota.Choice{Projects: &quota.Projects{}, Reason: "this test's kernel"}
	for _, counts := range []bool{true, false} {
		var k projects
		if counts {
			k = newKernel(t)
		}
		s := openOver(t, t.TempDir(), k, choice, nil)
		t.Cleanup(func() { mustDo(t, s.Close()) })
		_, err := s.Create(t.Context(), Spec{Name: "v", Size: 1 << 20, OnDelete: RetainFiles})
		mustDo(t, err)
		mustDo(t, s.Delete(t.Context(), "v"))
		kept, err := s.Kept()
		mustDo(t, err)
		if u, ok, err := s.KeptUsage(&kept[0]); err != nil || ok != counts || counts && u.Bytes == 0 {
			t.Errorf("counts: %v: %+v, %v, %v", counts, u, ok, err)
		}
	}
}
