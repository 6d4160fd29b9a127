package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/test/conformance/nfstest"
	"github.com/podnas/podnas/tools/nfsbench"
)

func TestBench(t *testing.T) {
	dir := t.TempDir()
	choice, err := server.SelectEngine(server.EngineAuto, server.HandlesAuto, dir)
	if err != nil {
		t.Fatal(err)
	}
	table := &exports.Table{}
	if err := table.Export(exports.Exported{ID: 1, Path: "/volume", Dir: dir}); err != nil {
		t.Fatal(err)
	}
	cfg := server.Config{Engine: choice, Exports: table, HandleKey: make([]byte, 32), Log: slog.New(slog.DiscardHandler)}
	if choice.Engine == server.EngineNative {
		cfg.NFS4 = t.TempDir()
	}
	nfs, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	address := nfstest.Serve(t, nfs).String()
	target := address + ":/volume"

	out, errs, err := podnas(t.Context(), "bench", target, "--against", target,
		"--loads=null,smallfile", "--duration=60ms", "--rounds=3", "--file-size=1", "--output=json")
	if err != nil || errs != "" {
		t.Fatalf("%v; on stderr %q, which is no terminal", err, errs)
	}
	var report nfsbench.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Loads) != 2 || report.Rounds != 3 || report.Targets[0] != target || report.Loads[0].Ratio == nil || report.Loads[1].Results[1].Ops == 0 {
		t.Errorf("%+v", report)
	}
	if out, _, err := podnas(t.Context(), "bench", target, "--loads=null", "--duration=20ms"); err != nil || !strings.Contains(out, "ops/s") {
		t.Errorf("printed %q, %v", out, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	if out, _, err := podnas(t.Context(), "bench", target, "--nfs=4.1", "--against", target, "--against-nfs=3", "--loads=getattr,read-4k-rand", "--duration=60ms", "--file-size=1"); choice.Engine == server.EngineNative &&
		(err != nil || !strings.Contains(out, "A: "+target+", NFS version 4.1\nB: "+target+", NFS version 3\n")) {
		t.Errorf("printed %q, %v", out, err)
	}
	if out, _, err := podnas(t.Context(), "bench", target, "--loads=null", "--duration=20ms", "--server-pid="+strconv.Itoa(os.Getpid()), "--output=csv"); err != nil || !strings.Contains(out, "server_user_us") {
		t.Errorf("printed %q, %v", out, err)
	}
	if _, _, err := podnas(t.Context(), "bench", target, "--loads=null", "--server-pid=4194303"); err == nil || !strings.Contains(err.Error(), "process 4194303") {
		t.Errorf("no such process: %v", err)
	}
	for _, version := range []nfsbench.Version{nfsbench.NFS3, nfsbench.NFS41} {
		if version != nfsbench.NFS3 && choice.Engine != server.EngineNative {
			continue
		}
		for where, want := range map[string]string{
			address + ":/nowhere": "\n  to do: list the volumes with podnas volume list",
			"127.0.0.1:1:/volume": "\n  to do: nothing listens there",
		} {
			_, _, err := podnas(t.Context(), "bench", where, "--nfs="+version.String())
			if err == nil || exitCode(err) != exitFailed || !strings.Contains(err.Error(), want) {
				t.Errorf("%s by version %s: %v, want %q", where, version, err, want)
			}
		}
	}
}

func TestBenchRefuses(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "HOST:/path is missing"},
		{[]string{"nas"}, "not HOST:/path"},
		{[]string{"/mnt/data"}, "findmnt -no SOURCE /mnt/data"},
		{[]string{"nas:/a", "nas:/b"}, "unexpected argument"},
		{[]string{"nas:/a", "--against=nas"}, "--against"},
		{[]string{"nas:/a", "--against-port=1"}, "need --against"},
		{[]string{"nas:/a", "--server-pid=0"}, "process id"},
		{[]string{"nas:/a", "--server-pid=4194304"}, "process id"},
		{[]string{"nas:/a", "--server-pid=self"}, "--server-pid"},
		{[]string{"nas:/a", "--against-server-pid=1"}, "need --against"},
		{[]string{"nas:/a", "--loads=reed-*"}, "no load is called"},
		{[]string{"nas:/a", "--depth=0"}, "at least 1"},
		{[]string{"nas:/a", "--duration=0s"}, "duration"},
		{[]string{"nas:/a", "--duration=long"}, "duration"},
		{[]string{"nas:/a", "--file-size=-1"}, "1 MiB"},
		{[]string{"nas:/a", "--nfs=4"}, "there are 3, 4.1 and 4.2"},
		{[]string{"nas:/a", "--against-nfs=4.1"}, "need --against"},
		{[]string{"nas:/a", "--against=nas:/a", "--against-nfs=4.3"}, "--against: version"},
		{[]string{"nas:/a", "--nfs=4.1", "--mountport=20048"}, "no MOUNT"},
		{[]string{"nas:/a", "--loads=lock-unlock"}, "--nfs=4.1"},
		{[]string{"nas:/a", "--nfs=4.1", "--against=nas:/a", "--against-nfs=3", "--loads=lock*"}, "--nfs=4.1"},
		{[]string{"nas:/a", "--output=yaml"}, "use -o table, json, csv"},
	} {
		_, _, err := podnas(t.Context(), append([]string{"bench"}, tt.args...)...)
		if usage := (*usageError)(nil); err == nil || !strings.Contains(err.Error(), tt.want) || !errors.As(err, &usage) {
			t.Errorf("%q: %v, want a usage error with %q", tt.args, err, tt.want)
		}
	}
}

func TestBenchHelp(t *testing.T) {
	out, _, err := podnas(t.Context(), "bench", "--help")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Examples:", "--against", "Exit codes:", "read-4k-rand", "untar"} {
		if !strings.Contains(out, want) {
			t.Errorf("bench --help lacks %q", want)
		}
	}
}
