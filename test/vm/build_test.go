//go:build vm

package vm_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestBuild clones a C program onto the mount and onto the local disk, and builds
// it in both places: what comes out is the same, byte for byte, and make finds
// the files' times as it wants them.
func TestBuild(t *testing.T) {
	nativeOnly(t, "it only takes its time")
	a := serve(t)
	pv := a.volume("build", "128Mi")
	mnt := mount(t, pv)
	source := repository(t, program())
	local, remote := filepath.Join(t.TempDir(), "clone"), filepath.Join(mnt, "clone")
	disk := filepath.Join(a.dir(pv), "clone")
	for _, dir := range []string{local, remote} {
		command(t, "git", "clone", "-q", "--no-local", source, dir)
		command(t, "make", "-s", "-j", "2", "-C", dir)
		command(t, "make", "-q", "-C", dir) // fails if anything is left to do
	}
	sameTree(t, remote, local)
	first := command(t, filepath.Join(remote, "program"))
	if want := command(t, filepath.Join(local, "program")); first != want || first == "" {
		t.Errorf("built on the mount it prints %q, on the local disk %q", first, want)
	}

	// One change: what depends on it is built again, and nothing else.
	for _, dir := range []string{local, remote} {
		module := filepath.Join(dir, "src/module3.c")
		text, err := os.ReadFile(module)
		if err != nil {
			t.Fatal(err)
		}
		mustWrite(t, module, bytes.ReplaceAll(text, []byte("* 31"), []byte("* 37")))
		made := strings.Fields(command(t, "make", "-s", "-C", dir, "VERBOSE=1"))
		if want := []string{"module3.o", "modules.a", "program"}; !slices.Equal(made, want) {
			t.Errorf("%s: after one change make makes %q, want %q", dir, made, want)
		}
	}
	dropCaches(t)
	sameTree(t, remote, local)
	sameTree(t, disk, local)
	if out := command(t, filepath.Join(remote, "program")); out == first {
		t.Error("the program is not the changed one")
	}
	command(t, "make", "-s", "-C", remote, "clean")
	if out, err := exec.Command("git", "-C", remote, "status", "--porcelain").Output(); err != nil || string(out) != " M src/module3.c\n" {
		t.Errorf("after make clean git finds %q, %v", out, err)
	}
}

// program is a C program: a generator that is built and run first, modules that
// include what it writes, an archive of them, and a main.
func program() map[string][]byte {
	const modules = 8
	files := map[string][]byte{
		"Makefile": []byte(`MODULES := $(patsubst src/%.c,%.o,$(wildcard src/module*.c))
CFLAGS := -O2 -Wall -Werror -MMD -Isrc -I.
said = $(if $(VERBOSE),@echo $@)
program: main.o modules.a
	$(CC) -o $@ $^
	$(said)
modules.a: $(MODULES)
	$(AR) rcs $@ $^
	$(said)
%.o: src/%.c | table.h
	$(CC) $(CFLAGS) -c -o $@ $<
	$(said)
table.h: generator
	./generator >$@
generator: src/generator.c
	$(CC) -O2 -o $@ $<
clean:
	rm -f *.o *.d *.a program generator table.h
-include $(wildcard *.d)
`),
		"src/generator.c": []byte(`#include <stdio.h>
int main(void) {
	puts("static const unsigned table[] = {");
	for (unsigned i = 0, x = 1; i < 2000; i++) printf("%u,\n", x = x * 1664525 + 1013904223);
	puts("};");
}
`),
		"src/modules.h": []byte("#include <stddef.h>\n"),
	}
	var calls strings.Builder
	for i := range modules {
		files["src/modules.h"] = fmt.Appendf(files["src/modules.h"], "unsigned module%d(unsigned x);\n", i)
		files[fmt.Sprintf("src/module%d.c", i)] = fmt.Appendf(nil, `#include <stdlib.h>
#include <string.h>
#include "modules.h"
#include "table.h"
unsigned module%[1]d(unsigned x) {
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) x = (x ^ table[i]) * 31 + %[1]d;
	return x;
}
`, i)
		fmt.Fprintf(&calls, "\tx = module%d(x);\n", i)
	}
	files["src/main.c"] = fmt.Appendf(nil, "#include <stdio.h>\n#include \"modules.h\"\nint main(void) {\n\tunsigned x = 1;\n%s\tprintf(\"%%u\\n\", x);\n}\n", calls.String())
	files[".gitignore"] = []byte("*.o\n*.d\n*.a\nprogram\ngenerator\ntable.h\n")
	return files
}

// sameTree checks that two directories hold the same files, but for what is in
// .git.
func sameTree(t *testing.T, got, want string) {
	t.Helper()
	list := func(root string) (names []string) {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.Name() == ".git":
				return fs.SkipDir
			case entry.Type().IsRegular():
				names = append(names, strings.TrimPrefix(path, root))
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return names
	}
	names := list(want)
	if other := list(got); !slices.Equal(other, names) {
		t.Errorf("%s holds %q, %s %q", got, other, want, names)
		return
	}
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(want, name))
		if err != nil {
			t.Error(err)
		}
		holds(t, filepath.Join(got, name), b)
	}
}
