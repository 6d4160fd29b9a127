// Command image packs podnas into container images, without a container engine.
//
//	image -ref ghcr.io/podnas/podnas:v1 -out dist amd64=PATH arm64=PATH
//
// takes one static binary per architecture and writes, into -out:
//
//	podnas-v1.tar        an OCI archive with an index of all architectures,
//	                     for kind load image-archive and ctr images import
//	podnas-v1-amd64.tar  the same image of one architecture in docker's format,
//	                     for docker load and minikube image load
//	podnas-v1-amd64.cdx.json
//	                     what the binary is made of, and what is beside it, as a
//	                     CycloneDX SBOM; the image has it too, and names it in the
//	                     label io.podnas.sbom
//
// With -add ARCH=FOLDER what is in a folder goes into the image too, and what is in
// its usr/sbin can be run by name: see xfsprogs.sh, for the variant that makes disk
// images. The folder says which packages its files are of (packages.go). The archives
// are named for the last part of -ref.
//
// The same binaries give the same bytes: files carry no times, and the image's
// creation time is SOURCE_DATE_EPOCH's, or 1970.
//
// A binary goes through newSBOM, rootfs (the layer) and newImage (configuration and
// manifest) into writeDocker, and with the others' into writeOCI.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
)

func main() {
	if err := run(os.Args[1:], os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string, epoch string) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	ref := flags.String("ref", "", "name and tag of the image")
	version := flags.String("version", "", "version to label the image with")
	license := flags.String("license", "LICENSE", "license file to put into the image")
	out := flags.String("out", "dist", "folder to write the archives to")
	added := map[string]string{}
	flags.Func("add", "ARCH=FOLDER whose files go into the image too", func(s string) error {
		arch, folder, ok := strings.Cut(s, "=")
		if added[arch] = folder; !ok {
			return fmt.Errorf("%q is not ARCH=FOLDER", s)
		}
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("no binaries: give ARCH=PATH for each")
	}
	tag, err := name.NewTag(*ref, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("read -ref: %w", err)
	}
	created, err := creationTime(epoch)
	if err != nil {
		return fmt.Errorf("read SOURCE_DATE_EPOCH: %w", err)
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}

	base := filepath.Join(*out, path.Base(tag.RepositoryStr())+"-"+tag.TagStr())
	var images []platformImage
	for _, arg := range flags.Args() {
		arch, binary, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q is not ARCH=PATH", arg)
		}
		files, packages, err := rootfs(binary, *license, added[arch])
		if err != nil {
			return fmt.Errorf("layer of %s: %w", arch, err)
		}
		sbom, err := writeSBOM(base+"-"+arch+".cdx.json", files["usr/bin/podnas"].data, packages, *version, created)
		if err != nil {
			return fmt.Errorf("SBOM of %s: %w", arch, err)
		}
		files[sbomPath] = file{0o644, sbom}
		layer, err := files.layer()
		if err != nil {
			return fmt.Errorf("layer of %s: %w", arch, err)
		}
		img, err := newImage(layer, arch, *version, files.path(), created)
		if err != nil {
			return fmt.Errorf("image of %s: %w", arch, err)
		}
		file := base + "-" + arch + ".tar"
		if err := writeDocker(file, tag, img); err != nil {
			return fmt.Errorf("write %s: %w", file, err)
		}
		fmt.Println(file)
		images = append(images, platformImage{arch, img})
	}
	file := base + ".tar"
	if err := writeOCI(file, tag, images); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	fmt.Println(file)
	return nil
}

func creationTime(epoch string) (time.Time, error) {
	if epoch == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(seconds, 0).UTC(), nil
}
