//go:build vm

package vm_test

import (
	"os/exec"
	"testing"
)

// TestKnfsd4 puts the kernel's own server to the conformance suite of versions 4.1 and 4.2,
// test/conformance/nfstest4, to check that suite.
func TestKnfsd4(t *testing.T) {
	const export, hidden = "/a/volume", "/a/hidden"
	// As test/bench/peers.sh has it.
	start := exec.Command("bash", "-euc", `source ../bench/peers.sh; register; knfsd4 "$@"`, "knfsd", xfs+"/exports", export, hidden)
	if out, err := start.CombinedOutput(); err != nil {
		t.Fatalf("start knfsd: %v\n%s", err, out)
	}
	for _, minor := range []string{"1", "2"} {
		t.Run("4."+minor, func(t *testing.T) {
			results := runSuite(t, knfsdNot, "-nfs", "127.0.0.1:2049", "-mount", "127.0.0.1:20049", "-minor", minor,
				"-export", export, "-hidden", hidden, "-restart", "bash -euc 'source ../bench/peers.sh; restart_knfsd4'")
			judge(t, "knfsd", results, knfsdDiffers)
		})
	}
}

// knfsdNot are the tests that the kernel's server of Linux 6.1 does not survive.
var knfsdNot = map[string]string{
	"slots/after-secinfo-cut-short": "it panics some time after a SECINFO_NO_NAME that it could not decode, in the cache of its exports",
}

// knfsdDiffers are the tests that the kernel's server of Linux 6.1 or 7.2 fails, with who is wrong, and
// the section of RFC 8881 that is on the suite's side.
var knfsdDiffers = map[string]string{
	"compound/tag":                             "knfsd: a tag of more than 128 bytes is refused, where section 16.2.3 has no such limit",
	"compound/only-operation":                  "knfsd: it takes BIND_CONN_TO_SESSION after SEQUENCE, where section 18.34.3 has it alone in its COMPOUND",
	"compound/operations-not-served":           "knfsd: it does RENEW, which section 17 takes from version 4.1. Nobody: it serves the operations of pNFS, which are optional",
	"compound/bad-xdr":                         "knfsd: it takes 2 for a boolean, which section 15.1.1.1 counts among what can't be decoded",
	"sessions/exchange-id-update":              "knfsd: it leaves EXCHGID4_FLAG_CONFIRMED_R out when a confirmed client is updated (section 18.35.4, case 6)",
	"sessions/create-session-limits":           "knfsd: TOOSMALL is no reply of CREATE_SESSION's cache, and does not move its sequence (section 18.36.4)",
	"sessions/sequence-refused":                "knfsd: it does not look at sa_highest_slotid, for which section 18.46.3 has BAD_HIGH_SLOT",
	"sessions/write-sent-again":                "nobody: it does not cache what it was not asked to cache, and the client sends the WRITE once more",
	"handles/bad-handle":                       "knfsd: it takes a handle with a byte too many, and for an empty one PUTFH gives NOFILEHANDLE, which section 15.2 does not have there",
	"handles/stale":                            "nobody: it keeps files open for some time, and what is removed is there as long; LINK of such a file gives NOENT",
	"handles/bad-names":                        "knfsd: a name with a zero byte gives ACCESS, where section 15.1.7 has BADCHAR and BADNAME",
	"attributes/supported":                     "knfsd: time_create is among supported_attrs, and GETATTR does not tell it (section 5.6)",
	"attributes/setattr-refused":               "knfsd: it takes a mode of 010000, where section 6.2.4 has INVAL",
	"attributes/owners":                        "knfsd: it takes +1, 01 and 1 with a zero byte for 1, where section 5.9 has decimal numbers without leading zeros",
	"open/refused":                             "knfsd: BADXDR for a share_access or share_deny that is none, where section 18.16.3 has INVAL: they are numbers, and no enumerations",
	"open/types":                               "knfsd: CLAIM_FH of a FIFO gives INVAL, where section 18.16.3 has WRONG_TYPE. The suite (7.2): an OPEN of one says WRONG_TYPE as the RFC has it, which Linux's client does not understand",
	"open/unchecked":                           "knfsd: attrset has the mode, which is not set when UNCHECKED4 finds the file (section 18.16.3)",
	"open/downgrade":                           "knfsd: as open/refused (section 18.18.3)",
	"open/seqid-of-the-current-stateid":        "knfsd: it passes the current stateid on with its seqid, where section 8.2.3 has zero but for CLOSE and OPEN_DOWNGRADE",
	"open/current-stateid":                     "knfsd: LOCK does not take the current stateid for its open_stateid (section 16.2.3.1.2)",
	"failed-creates/owner-that-may-not-be-set": "knfsd: it leaves what it could not give the owner, and CREATE says OK (7.2). The RFC does not say that a create that fails leaves nothing; who tries again gets EXIST",
	"failed-creates/size-too-large":            "knfsd: as failed-creates/owner-that-may-not-be-set",
	"open/removed-while-open":                  "nobody: as handles/stale, after the last CLOSE",
	"open/version-3-beside-it":                 "nobody: its version 3 does not heed share reservations, of which RFC 1813 knows nothing",
	"locks/refused":                            "knfsd: it gives a read lock to an open that may only write, where section 18.10 has OPENMODE",
	"locks/of-the-largest-offset":              "knfsd: it takes offsets from 2^63 on for 2^63-1, where section 18.10 has BAD_RANGE for who can't lock there",
	"locks/test-stateid":                       "knfsd: it takes another client's stateid for one of this client's, where section 18.48.3 has BAD_STATEID",
	"callbacks/not-answered":                   "nobody: it waits longer than the test for the reply to a callback",
	"callbacks/another-connection":             "nobody: it does not say again what could not be said, which section 20.11 leaves to it: a client asks by itself as well",
	"restarts/reclaim-of-too-much":             "knfsd: SHARE_DENIED, where section 15.1.9 has RECLAIM_CONFLICT for a reclaim that another is in the way of",
	"restarts/removed-while-open":              "nobody: it loses files without a name when it ends, which OPEN4_RESULT_PRESERVE_UNLINKED does not cover (section 18.16.4): it does not set that",

	"details/attributes-that-were-set":                 "knfsd: attrset has the mode of a symbolic link, which is not set (section 18.4.3)",
	"details/attributes-that-were-set-before-an-error": "knfsd: attrset is empty after an error, and the size was set (section 18.34.3)",
	"details/cookie-verifier":                          "knfsd: it does not look at the verifier of a cookie, for which section 18.23.3 has NOT_SAME",
	"details/verify-of-many-attributes":                "knfsd: it has no room to compare suppattr_exclcreat, and says NOT_SAME (section 18.30.3)",
	"details/names-without-the-right-to-search":        "knfsd: it looks at each file, also if no attribute is asked for (section 18.23.3)",
	"types/symbolic-link":                              "knfsd: it says that it has set the mode of a symbolic link, which stays 0777 (section 18.34.3)",
	"compound/tag-that-is-no-utf-8":                    "knfsd: it takes any bytes for a tag, where section 14.5 has INVAL for what is no UTF-8",
	"clients/session-of-another-principal":             "knfsd (7.2): it remembers that it has refused CREATE_SESSION to another principal, and says so to the right one (section 18.36.4)",
	"sessions/another-principal":                       "knfsd (7.2): as clients/session-of-another-principal",
	"names/readdir-refused":                            "knfsd (7.2): REP_TOO_BIG for a maxcount of 40, where section 18.23.3 has TOOSMALL",
	"clients/destroy-session-elsewhere":                "knfsd: it takes DESTROY_SESSION by any connection, where section 18.37.3 has one of the session's",
	"slots/current-stateid-lost":                       "knfsd: LOCKU, and RESTOREFH if no stateid was saved, leave the current one as it was, where section 16.2.3.1.2 has that of the result, and the saved one",
	"ranges/COPY":                                      "knfsd: it copies from a file to itself, where section 15.2.3 of RFC 7862 has INVAL",
	"ranges/ranges-that-are-too-large":                 "knfsd: IO for a COPY that ends behind the largest offset, where section 15.2.3 of RFC 7862 has INVAL",
	"ranges/stateids-of-copies":                        "nobody: it reads the source by an open that may only write, as section 18.22.3 has it for READ",
	"ranges/ranges-that-overlap":                       "knfsd: as ranges/COPY",
	"ranges/files-of-copies":                           "knfsd: ISDIR, SYMLINK and INVAL for a copy of what is no regular file, where section 15.2.3 of RFC 7862 has WRONG_TYPE",
	"ranges/CLONE-is-one-change":                       "knfsd (7.2): the copy ends with zeros where neither file had any, after READs and WRITEs beside the CLONE (section 15.13.3 of RFC 7862)",
	"ranges/CLONE-beside-what-truncates":               "knfsd (7.2): as ranges/CLONE-is-one-change, beside an OPEN or a CREATE that truncates",
	"acls/inherited":                                   "knfsd: it gives a default ACL of everyone alone more for the owner, and keeps one when an ACL without inherited entries is set (section 6.4.3)",
	"acls/of-modes":                                    "knfsd: NOTSUPP for the ACL of a symbolic link, where section 6.2.1 has ATTRNOTSUPP",
	"acls/refused":                                     "nobody: it takes flags and rights that POSIX ACLs have not, and leaves them out",
	"attributes/time-of-birth":                         "nobody: it has time_create in version 4.1, too, and sets it",
	"attributes/umask":                                 "nobody: it takes bits that neither a mode nor a umask has, and leaves them out",
	"attributes/umask-elsewhere":                       "knfsd: BADXDR for mode_umask in SETATTR, where section 3 of RFC 8275 has INVAL",
	"ranges/change-attribute-of-copies":                "nobody (6.1): COPY reads the source, and so sets its access time",
	"ranges/copy-from-a-server":                        "knfsd (6.1): BADXDR for a COPY between servers, which it does not do, where section 15.2.3 of RFC 7862 has OFFLOAD_DENIED",
	"ranges/minor-version-of-attributes":               "nobody (6.1): it has no clone_blksize",
	"extended-attributes/a-file-that-is-removed":       "nobody (6.1): as handles/stale",
	"extended-attributes/values":                       "knfsd: it ends the connection for a value of 900 KiB, where section 8.4.2.3 of RFC 8276 has XATTR2BIG",
	"extended-attributes/listing":                      "knfsd: OK for a maxcount that not even the first name fits in, and a reply that is not XDR, where section 8.4.3.3 of RFC 8276 has TOOSMALL",
	"extended-attributes/access":                       "knfsd: INVAL for rights that version 4.1 has not, which section 18.1.3 leaves out of what is supported",
	"extended-attributes/many":                         "nobody: it gives a file more attributes than it can list, and says XATTR2BIG for the list",
	"callbacks/too-long":                               "nobody: it wants room for any callback that it may send, and TOOSMALL says so",
}
