package app

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/volume/diskimage"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server"
)

// config is of an App that refuses nothing.
func config(t *testing.T) Config {
	t.Helper()
	return Config{
		Root: t.TempDir(), Quota: quota.Auto, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Engine: server.EngineAuto, Handles: server.HandlesAuto,
		IndexMemory: DefaultIndexMemory, Lease: server.DefaultLease, Standalone: true, ClaimsDir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
	}
}

// A flag that means nothing is refused before a port is opened.
func TestNewRefusesFlags(t *testing.T) {
	for name, mistake := range map[string]func(*Config){
		"quota":       func(c *Config) { c.Quota = "none" },
		"engine":      func(c *Config) { c.Engine = "ganesha" },
		"handles":     func(c *Config) { c.Handles = "names" },
		"claims":      func(c *Config) { c.ClaimsDir = "" },
		"index":       func(c *Config) { c.IndexMemory = 0 },
		"short lease": func(c *Config) { c.Lease = 9 * time.Second },
		"long lease":  func(c *Config) { c.Lease = 121 * time.Second },
		"half second": func(c *Config) { c.Lease = 7500 * time.Millisecond },
		"overcommit":  func(c *Config) { c.Overcommit = -1 },
		"grace":       func(c *Config) { c.ClaimGrace = -1 },
		"newIdentity": func(c *Config) { c.NewIdentity = "mine" },
		"shared path": func(c *Config) { c.SharedDisk = "dev/podnas" },
		"two disks": func(c *Config) {
			c.SharedDisk, c.Image = "/dev/podnas", &diskimage.Spec{Path: "/disk/podnas.img", Size: 1 << 30}
		},
	} {
		cfg := config(t)
		cfg.Listen = "nowhere" // which would be the error of a port
		mistake(&cfg)
		if _, err := New(cfg); !errors.As(err, new(*FlagError)) {
			t.Errorf("%s: %v, want a FlagError", name, err)
		}
	}
}

// If one port is taken, the other is given back.
func TestNewGivesBackThePort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	defer taken.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	cfg := config(t)
	cfg.Listen, cfg.HTTP = free.Addr().String(), taken.Addr().String()
	mustDo(t, free.Close())
	if _, err := New(cfg); !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("New: %v", err)
	}
	again, err := net.Listen("tcp", cfg.Listen)
	mustDo(t, err)
	mustDo(t, again.Close())
}

// A standby has the port of NFS closed, but refuses to start where it can't be had.
func TestPortOfAStandby(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	cfg := config(t)
	cfg.SharedDisk, cfg.Listen = "/dev/missing", free.Addr().String()
	if _, err := New(cfg); !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("New: %v", err)
	}
	mustDo(t, free.Close())
	a, err := New(cfg)
	mustDo(t, err)
	again, err := net.Listen("tcp", cfg.Listen)
	mustDo(t, err)
	mustDo(t, again.Close())
	if err := a.Run(t.Context()); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "shared disk /dev/missing") {
		t.Errorf("a disk that is not there: %v", err)
	}
}
