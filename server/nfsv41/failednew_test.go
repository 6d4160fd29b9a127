package nfsv41_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podnas/podnas/server/nfsv41"
)

// A server that can't be made has no folder open.
func TestFailedNew(t *testing.T) {
	for name, spoil := range map[string]func(l *life) error{
		"the number of the run can't be put aside": func(l *life) error {
			file := filepath.Join(filepath.Dir(l.cfg.Tracking), nfsv41.RunFile)
			for i := 1; i <= 1000; i++ { // more than there may be
				if err := os.WriteFile(fmt.Sprintf("%s.damaged-%d", file, i), nil, 0o600); err != nil {
					return err
				}
			}
			return os.WriteFile(file, nil, 0o600)
		},
		"the log's folder is a file": func(l *life) error { return os.WriteFile(l.cfg.StateLog, nil, 0o600) },
		"the client tracking is below a file": func(l *life) error {
			l.cfg.Tracking = filepath.Join(l.cfg.Tracking, "clients")
			return os.WriteFile(filepath.Dir(l.cfg.Tracking), nil, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t)
			l.do(spoil(l))
			if _, err := nfsv41.New(l.cfg); err == nil {
				t.Fatal("it is made")
			}
			for _, folder := range []string{filepath.Dir(l.cfg.Tracking), filepath.Dir(l.cfg.StateLog)} {
				if open := openBelow(t, folder); len(open) > 0 {
					t.Errorf("open still: %v", open)
				}
			}
		})
	}
}

// openBelow returns what this process has open in a folder.
func openBelow(t *testing.T, folder string) (open []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	mustDo(t, err)
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, folder) {
			open = append(open, target)
		}
	}
	return open
}
