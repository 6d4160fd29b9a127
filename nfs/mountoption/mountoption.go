// Package mountoption knows what mount options of nfs(5) mean to a server of versions 3, 4.1 and 4.2.
package mountoption

import "strings"

// Version returns the version of NFS that an option sets, as "3" or "4.1", or "" if it sets none.
// mount.nfs takes v3 and v4.1 as well.
func Version(option string) string {
	key, value, _ := strings.Cut(option, "=")
	switch key {
	case "nfsvers", "vers":
		return value
	case "v2", "v3", "v4", "v4.0", "v4.1", "v4.2":
		return key[1:]
	}
	return ""
}

// Is4 reports whether a version is version 4, whatever the minor one.
func Is4(version string) bool { return strings.HasPrefix(version, "4") }

// Subject returns what an option is about: two with the same subject contradict or repeat each
// other.
func Subject(option string) string {
	key, _, _ := strings.Cut(option, "=")
	switch key {
	case "v2", "v3", "v4", "v4.0", "v4.1", "v4.2", "vers":
		return "nfsvers"
	case "tcp", "tcp6":
		return "proto"
	case "nolock":
		return "lock"
	}
	return key
}

// OnlyVersion3 reports whether an option has a meaning for version 3 alone.
func OnlyVersion3(option string) bool {
	switch Subject(option) {
	case "lock", "local_lock", "mountport", "mountproto", "mountvers", "mounthost":
		return true
	}
	return false
}
