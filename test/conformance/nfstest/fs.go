package nfstest

import (
	"github.com/podnas/podnas/nfs/nfs3"
)

var fsTests = []test{
	{"FSSTAT", testFsstat},
	{"FSINFO", testFsinfo},
	{"PATHCONF", testPathconf},
}

func testFsstat(e *env) {
	for name, fh := range map[string]nfs3.FH{"root": e.root, "directory": e.dir, "file": e.create(e.dir, "file")} {
		res := e.fsstat(fh)
		e.ok("FSSTAT", res.Status)
		if res.TBytes == 0 || res.FBytes > res.TBytes || res.ABytes > res.FBytes {
			e.Errorf("%s: bytes %d, free %d, available %d", name, res.TBytes, res.FBytes, res.ABytes)
		}
		// Some file systems don't count files, and return 0.
		if res.FFiles > res.TFiles || res.AFiles > res.FFiles {
			e.Errorf("%s: files %d, free %d, available %d", name, res.TFiles, res.FFiles, res.AFiles)
		}
		if res.TBytes >= 1<<60 {
			e.Errorf("%s: %d bytes can't be true", name, res.TBytes)
		}
	}
}

func testFsinfo(e *env) {
	res := e.fsinfo(e.root)
	e.ok("FSINFO", res.Status)
	const least = 8192 // the maximum of NFSv2
	if res.RtMax < least || res.WtMax < least || res.DtPref < 512 {
		e.Errorf("rtmax %d, wtmax %d, dtpref %d", res.RtMax, res.WtMax, res.DtPref)
	}
	if res.RtPref > res.RtMax || res.WtPref > res.WtMax || res.RtPref == 0 || res.WtPref == 0 {
		e.Errorf("rtpref %d of %d, wtpref %d of %d", res.RtPref, res.RtMax, res.WtPref, res.WtMax)
	}
	if res.RtMult == 0 || res.WtMult == 0 {
		e.Errorf("rtmult %d, wtmult %d", res.RtMult, res.WtMult)
	}
	if res.MaxFileSize < 1<<40 {
		e.Errorf("maxfilesize %d", res.MaxFileSize)
	}
	if res.TimeDelta.Sec > 2 || res.TimeDelta.Nsec >= 1e9 {
		e.Errorf("time_delta %v", res.TimeDelta)
	}
	if want := uint32(nfs3.FSFSymlink | nfs3.FSFCanSetTime); res.Properties&want != want {
		e.Errorf("properties %#x", res.Properties)
	}
	e.need(FeatureLink)
	if res.Properties&nfs3.FSFLink == 0 {
		e.Errorf("properties %#x: no hard links", res.Properties)
	}
}

func testPathconf(e *env) {
	for name, fh := range map[string]nfs3.FH{"root": e.root, "directory": e.dir, "file": e.create(e.dir, "file")} {
		res := e.pathconf(fh)
		e.ok("PATHCONF", res.Status)
		if res.NameMax != nfs3.MaxName || !res.NoTrunc || res.CaseInsensitive || !res.CasePreserving {
			e.Errorf("%s: %+v", name, res)
		}
		if _, lacks := e.target.Lacks[FeatureLink]; !lacks && res.LinkMax < 2 {
			e.Errorf("%s: linkmax %d", name, res.LinkMax)
		}
	}
}
