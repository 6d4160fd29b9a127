package main

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/podnas/podnas/internal/process"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/control"
)

func newShowCommand(cfg *volumeConfig) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "show NAME",
		Aliases: []string{"get", "describe"},
		Short:   "Show all details of one volume, how to mount it, and who has its files open and locked",
		Example: "  # Its options, its claim, and the command that mounts it\n  podnas volume show scratch\n\n" +
			"  # Its record, for programs\n  podnas volume show scratch -o yaml",
		Args: exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := cfg.client()
			if err != nil {
				return err
			}
			v, err := client.Get(cmd.Context(), args[0])
			if err != nil {
				return advise(err)
			}
			s := shown{Volume: v, Directory: filepath.Join(cfg.root, v.Directory())}
			var notNow error
			if v.State == volume.Ready {
				var manifests []control.Manifest
				manifests, notNow = client.Manifests(cmd.Context(), v.Name)
				if len(manifests) == 1 {
					s.Mount = provisioner.MountCommand(manifests[0].Volume)
				}
			}
			if v.State == volume.Ready {
				all, err := client.NFS4(cmd.Context(), v.Name)
				if err != nil {
					return err
				}
				s.NFS4 = &all
			}
			if output != outputTable {
				return printValue(cmd.OutOrStdout(), output, s)
			}
			if s.Mount = cmp.Or(s.Mount, "-"); notNow != nil {
				s.Mount = "not now: " + notNow.Error()
			}
			if err := printVolume(cmd.OutOrStdout(), s); err != nil {
				return err
			}
			if s.NFS4 == nil {
				return nil
			}
			return printHoldings(cmd.OutOrStdout(), s.NFS4)
		},
	}
	addOutputFlag(cmd.Flags(), &output, outputTable, outputJSON, outputYAML)
	return cmd
}

// shown is what 'podnas volume show' prints of a volume.
type shown struct {
	control.Volume
	Directory string `json:"directory"`       // of its files, on podnas's machine or in its pod
	Mount     string `json:"mount,omitempty"` // the command

	NFS4 *process.NFS4 `json:"nfs4,omitempty"` // who has its files open and locked
}

func printVolume(out io.Writer, s shown) error {
	v := s.Volume
	used := "not counted"
	if v.Used != nil {
		used = volume.FormatSize(v.Used.Bytes) + ", " + usedFiles(v, "file", " of ")
		if v.Used.Partial {
			used += " so far: not all files are counted yet"
		}
	}
	limited := quotaOf(v)
	if v.Quota != nil {
		limited += ": " + v.Quota.Reason
	}
	clients := "all"
	if len(v.Options.Clients) > 0 {
		clients = strings.Trim(fmt.Sprint(v.Options.Clients), "[]")
	}
	state := v.State
	switch {
	case v.Assigning != nil && v.Assigning.Problem != "":
		state += ", but its size is not enforced, because its files can't be assigned to it: " + v.Assigning.Problem
	case v.Assigning != nil:
		state += ", but its size is not enforced until its files are assigned to it" + assignedOf(v)
	}
	if v.Since != nil {
		state += fmt.Sprintf(" since %s (%s)", v.Since.Format(time.RFC3339), age(*v.Since))
	}
	directory := s.Directory
	if v.State == volume.Archived {
		directory += ", but its files are in the archive"
	}
	return printDetails(out, [][2]string{
		{"Name:", v.Name},
		{"State:", state},
		{"Problem:", v.Problem},
		{"To do:", v.Fix},
		{"Directory:", directory},
		{"Size:", sizeOf(v)},
		{"Used:", used},
		{"Quota:", limited},
		{"Claim:", claimName(v)},
		{"Class:", cmp.Or(v.StorageClass, "-")},
		{"Clients:", clients},
		{"Options:", cmp.Or(strings.Join(options(v.Options), ", "), "none")},
		{"On delete:", onDelete(v)},
		{sourceTitle(v), copyOf(v)},
		{"Snapshots:", snapshotsOf(v)},
		{"Schedule:", scheduleOf(v)},
		{"Project:", cmp.Or(strings.TrimPrefix(fmt.Sprint(v.Project), "0"), "-")},
		{"Created:", created(v)},
		{"Mount:", cmp.Or(s.Mount, "-")},
	})
}

func sourceTitle(v control.Volume) string {
	if v.View {
		return "Shows:"
	}
	return "Copy of:"
}

func copyOf(v control.Volume) string {
	if v.SourceSnapshot != "" {
		return "snapshot " + v.SourceSnapshot + " of " + v.Source
	}
	return cmp.Or(v.Source, "-")
}

func snapshotsOf(v control.Volume) string {
	if v.Snapshots == 0 {
		return "-"
	}
	said := fmt.Sprintf("%d with at most %s", v.Snapshots, volume.FormatSize(v.SnapshotBytes))
	if v.SnapshotsReserved > 0 {
		said += fmt.Sprintf(", of which %s is promised", volume.FormatSize(v.SnapshotsReserved))
	}
	return said + ", see 'podnas snapshot list " + v.Name + "'"
}

// scheduleOf says which snapshots are taken by themselves, and when.
func scheduleOf(v control.Volume) string {
	said := v.Schedule.String()
	if s := v.Scheduled; s != nil {
		if !s.Last.IsZero() {
			said += fmt.Sprintf("; the last %s ago", age(s.Last))
		}
		switch {
		case s.Problem != "":
			said += "; " + s.Problem
		case time.Until(s.Next) > 0:
			said += fmt.Sprintf("; the next in %s", duration.HumanDuration(time.Until(s.Next)))
		}
	}
	return said
}

// created is "-" if the record of the volume can't be read.
func created(v control.Volume) string {
	if v.Created.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%s (%s)", v.Created.Format(time.RFC3339), age(v.Created))
}

// sizeOf is "-" if the record of the volume can't be read.
func sizeOf(v control.Volume) string {
	if v.Size == 0 {
		return "-"
	}
	return volume.FormatSize(v.Size)
}

func usedBytes(v control.Volume) string {
	if v.Used == nil {
		return "-"
	}
	used := volume.FormatSize(v.Used.Bytes)
	if v.Used.Partial {
		used += "+"
	}
	return used
}

// usedFiles is how many files a volume has, and may have.
func usedFiles(v control.Volume, thing, of string) string {
	files := volume.FormatCount(v.Used.Inodes, thing)
	if v.Inodes > 0 {
		files += of + volume.FormatCount(v.Inodes, "")
	}
	return files
}

func claimName(v control.Volume) string {
	if v.Claim == nil {
		return "-"
	}
	return v.Claim.Namespace + "/" + v.Claim.Name
}

func onDelete(v control.Volume) string { return cmp.Or(string(v.OnDelete), string(volume.DeleteFiles)) }

// options are what of a volume's options is not as usual.
func options(o volume.Options) []string {
	var said []string
	add := func(is bool, text string) {
		if is {
			said = append(said, text)
		}
	}
	add(o.RootSquash && !o.AllSquash, "root-squash")
	add(o.AllSquash, "all-squash")
	add(o.AnonUID != 0, fmt.Sprintf("anon-uid=%d", o.AnonUID))
	add(o.AnonGID != 0, fmt.Sprintf("anon-gid=%d", o.AnonGID))
	add(o.ReadOnly, "read-only")
	add(o.Async, "no-sync")
	add(o.PrivilegedPorts, "privileged-ports")
	add(len(o.Clients) > 0, "allowed-clients")
	return said
}
