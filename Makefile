# Everything a person or CI does with this tree. make help lists the targets.
# Needed: Go, make, git and bash. The suites fetch the rest, see CONTRIBUTING.md.

# What is compiled does not contain the name of this folder, so a clone in another one finds it in Go's cache.
export GOFLAGS := $(strip $(shell go env GOFLAGS) -trimpath)

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
.DELETE_ON_ERROR:

# The tag of the image is written in the manifest; what is built must match it.
IMAGE := $(shell sed -n 's/^ *image: *//p' deploy/base/statefulset.yaml)
TAG := $(lastword $(subst :, ,$(IMAGE)))
ARCHIVE := dist/podnas-$(TAG).tar
XFS_ARCHIVE := dist/podnas-xfs-$(TAG).tar
ARCHITECTURES := amd64 arm64

# What podnas version prints.
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo $(TAG))
# The date of the commit, so that the same commit gives the same image.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

GO_BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false
COMMIT := $(shell git rev-parse HEAD 2>/dev/null)
DATE = $(shell date -u -d @$(SOURCE_DATE_EPOCH) +%Y-%m-%dT%H:%M:%SZ)
STAMP = -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)
# Runs a suite, and says which of its tests did not run. With CI set that is an error.
SUITE := go run ./test/skips
# Names no test. It is an argument of the tests, and so in the key of their results in Go's cache: see test/machine.sh.
ON_MACHINE = -skip '^machine-$(shell test/machine.sh | sha256sum | cut -c1-16)$$'
GOLANGCI_LINT := go tool -modfile=test/tools/go.mod golangci-lint
ACTIONLINT := go tool -modfile=test/tools/actionlint/go.mod actionlint
CHECKLOCKS := go tool -modfile=test/tools/checklocks/go.mod -n checklocks
CRANE := go tool -modfile=test/tools/go.mod crane
HELM := go tool -modfile=test/tools/helm/go.mod helm

# Where make push pushes to.
REGISTRY ?= $(patsubst %/,%,$(dir $(IMAGE)))

FUZZTIME := 30s

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "%-16s %s\n", $$1, $$2 }' Makefile

.PHONY: build
build: ## build bin/podnas (the default)
	@[ -x bin/podnas ] || echo 'make: building bin/podnas. The first build fetches Go modules and compiles them, which takes a few minutes.'
	$(GO_BUILD) -ldflags '$(STAMP)' -o bin/podnas ./cmd/podnas

.PHONY: run
run: build ## serve the example claims on 127.0.0.1, without a cluster; ARGS='more flags'
	@mkdir -p data/root
	@echo 'module data // so that ./... leaves out what is on the volumes' >data/go.mod
	@[ -d data/claims ] || cp -r deploy/examples/standalone data/claims
	@exec bin/podnas serve --standalone --root data/root --claims data/claims \
		--listen 127.0.0.1:20490 --http 127.0.0.1:20491 $(ARGS)

# Without go vet, which make lint runs: here it looks at all that podnas imports, too. Four packages
# at a time, because some of them mostly wait, and those first that take longest. What the race
# detector is no help with, such as a measure of memory, is in files that it leaves out, and has a run
# of its own beside the others (test/skips/race_test.go compares the list).
.PHONY: test
test: ## unit tests and the conformance suite; RACE=1 with the race detector, as CI has it
	@echo 'make: testing. The first time this fetches Go modules and compiles them, which takes a few minutes.'
	@race=; cgo=0; status=0; beside=; \
	if [ '$(RACE)' = 1 ]; then \
		race=-race; cgo=1; \
		printf '#include <pthread.h>\nint main(void) { return 0; }\n' | $$(go env CC) -x c -o /dev/null - || \
			{ echo 'make: the race detector needs a C compiler, such as gcc and libc6-dev: install it, or leave out RACE=1' >&2; exit 1; }; \
		beside=$$(mktemp); trap 'rm -f "$$beside"' EXIT; \
		{ set -x; $(SUITE) go test -json -vet=off -timeout 30m $(ON_MACHINE) -run 'TestAllocations|TestResident|TestFileSystems|TestWaysToFindFiles|TestConformance4Switches|TestOtherRights|TestLargeFile|TestOCIArchive|TestDockerArchive|TestReproducible|TestAddedFiles|TestBadArguments|TestPackages|TestPackagesMissing|TestSBOM|TestPurl' ./server ./server/nfsv3 ./server/nfsv41/... ./provisioner/standalone ./deploy/image; } >"$$beside" 2>&1 & \
	fi; \
	set -x; CGO_ENABLED=$$cgo $(SUITE) go test -json -vet=off -timeout 30m $(ON_MACHINE) -p 4 $$race ./server ./server/inode ./server/snapshot ./... || status=1; \
	{ set +x; } 2>/dev/null; \
	[ -z "$$beside" ] || { wait $$! || status=1; cat "$$beside"; }; \
	exit $$status

.PHONY: lint
lint: manifests-check locks ## golangci-lint, go vet's checks included, and actionlint (built on first use, 2 minutes)
	$(GOLANGCI_LINT) run
	$(ACTIONLINT) -shellcheck= -pyflakes= .github/workflows/*.yml

# What a mutex guards says so (+checklocks), and so does a function that needs it. Tests are left out: what
# they look at, nobody else has.
.PHONY: locks
locks: ## that what a mutex guards is used only with it held (gVisor's checklocks)
	@echo 'make: checking locks'; \
	found=$$(go vet -vettool="$$($(CHECKLOCKS))" -inferred=false ./... 2>&1 | grep -vE '^#|_test\.go:' || true); \
	[ -z "$$found" ] || { echo "$$found"; exit 1; }

.PHONY: vuln
vuln: ## known vulnerabilities in what podnas is built from (asks vuln.go.dev)
	go tool -modfile=test/tools/go.mod govulncheck ./...

.PHONY: fmt
fmt: ## format all Go code
	$(GOLANGCI_LINT) fmt

.PHONY: fuzz
fuzz: ## fuzz every decoder for FUZZTIME=30s each; CHANGED=1 leaves out what has passed that before
	FUZZTIME='$(FUZZTIME)' CHANGED='$(CHANGED)' $(SUITE) test/fuzz.sh

.PHONY: vm
vm: ## a real kernel's NFS client and XFS quotas, under User-Mode Linux (root); SHORT=1 for what each change runs
	$(SUITE) test/vm/run.sh

.PHONY: chaos
chaos: ## faults drawn from a seed under two nodes, for CHAOS=1h (root); SEED=N draws the same again; RUN=TestFailovers for failovers
	CHAOS='$(or $(CHAOS),1h)' SEED='$(SEED)' NFS=4.2 ENGINE=native RUN='^$(or $(RUN),TestChaos)$$' test/vm/run.sh

.PHONY: nfstest
nfstest: ## NFStest's tests of locks and of POSIX by the kernel's client, in 10 minutes (root); PROGRAMS='nfstest_xattr ...'
	test/vm/nfstest.sh $(PROGRAMS)

# With priority: what is measured is how long victims wait for the server, not for the linters beside it.
.PHONY: attack
attack: ## a hostile client before a server in a box (root), in minutes; ATTACKTIME=1h for longer
	$(SUITE) nice -n -10 go test -json -tags attack -count=1 -timeout 30m -run TestHostileClients ./cmd/podnas
	$(SUITE) test/attack/run.sh $(ARGS)

.PHONY: arm64
arm64: ## the tests built for arm64, under QEMU's user mode (root, Debian on x86-64)
	$(SUITE) test/arm64/run.sh

.PHONY: bench
bench: ## how fast: native beside go-nfs and more, see test/bench/run.sh (root); ARGS='flags of podnas bench'
	test/bench/run.sh $(ARGS)

.PHONY: idle
idle: ## how often a server with 200 volumes and 50 clients wakes that has nothing to do (root, 3 minutes)
	CI=true go test -count=1 -exec 'taskset -c 0' -run '^TestIdle$$' -v ./cmd/podnas | grep -A 20 -E 'wakes a second|^(ok|---|FAIL)'

.PHONY: page
page: ## the status page in a headless Chromium; PAGE_PICTURES=DIR keeps the pictures
	@$(if $(PAGE_PICTURES),mkdir -p '$(abspath $(PAGE_PICTURES))'; )chromium=$$(test/page/setup.sh); axe=$$(test/page/axe.sh); set -x; \
	CHROMIUM=$$chromium AXE=$$axe PAGE_PICTURES='$(if $(PAGE_PICTURES),$(abspath $(PAGE_PICTURES)))' $(SUITE) go test -tags page -count=1 -timeout 20m -v ./test/page

.PHONY: page-picture
page-picture: ## takes docs/page.png, the picture in README.md (root, six minutes)
	test/page/picture.sh

# Nice, because .ci/run has it beside make vm, where calls of a guest's client have time limits.
.PHONY: cluster
cluster: ## a real Kubernetes control plane, built on the first run
	nice -n 5 test/cluster/build.sh
	$(SUITE) nice -n 5 go test -tags cluster -count=1 -timeout 30m -v ./test/cluster/...

.PHONY: bench-claims
bench-claims: ## how fast 1,000 claims are bound, beside a provisioner that does nothing
	test/cluster/build.sh
	go test -tags cluster -run '^$$' -bench Bind -benchtime 1x -timeout 20m ./test/cluster

.PHONY: e2e
e2e: image image-xfs ## a whole cluster with a real node: apply, claim, write, upgrade, restart, delete (root); SHORT=1
	PODNAS_IMAGE='$(CURDIR)/$(ARCHIVE)' PODNAS_XFS_IMAGE='$(CURDIR)/$(XFS_ARCHIVE)' $(SUITE) test/e2e/run.sh

.PHONY: image
image: ## container images as archives in dist/, without a container engine
	rm -rf dist
	@for arch in $(ARCHITECTURES); do \
		set -x; GOOS=linux GOARCH=$$arch $(GO_BUILD) -ldflags '-s -w $(STAMP)' -o dist/bin/$$arch/podnas ./cmd/podnas; \
		{ set +x; } 2>/dev/null; \
	done
	go run ./deploy/image -ref '$(IMAGE)' -version '$(VERSION)' -out dist \
		$(foreach arch,$(ARCHITECTURES),$(arch)=dist/bin/$(arch)/podnas)

.PHONY: image-xfs
image-xfs: image ## the image of deploy/overlays/disk-image, which makes XFS, for amd64 (Debian on amd64)
	deploy/image/xfsprogs.sh dist/xfsprogs
	go run ./deploy/image -ref '$(subst /podnas:,/podnas-xfs:,$(IMAGE))' -version '$(VERSION)' -out dist \
		-add amd64=dist/xfsprogs amd64=dist/bin/amd64/podnas

.PHONY: reproducible
reproducible: image ## build the images twice and fail if a byte differs; ARGS=--fresh with an empty build cache
	VERSION='$(VERSION)' COMMIT='$(COMMIT)' deploy/reproducible.sh $(ARGS)

.PHONY: chart
chart: ## the Helm chart as an archive in dist/
	mkdir -p dist
	$(HELM) package deploy/helm/podnas --destination dist

.PHONY: release-check
release-check: ## fail unless this commit has the tag that its manifest names
	@[ "$$(git describe --tags --exact-match)" = '$(TAG)' ] || { echo 'make: this commit is not tagged $(TAG)' >&2; exit 1; }
	@[ -z "$$(git status --porcelain)" ] || { echo 'make: there are changes that are not committed' >&2; exit 1; }

.PHONY: login
login: ## log in to the registry of make push, as USERNAME; the password is read from standard input
	@password=$$(cat); host='$(REGISTRY)'; host=$${host%%/*}; \
	$(CRANE) auth login "$$host" --username '$(USERNAME)' --password-stdin <<<"$$password"; \
	$(HELM) registry login "$$host" --username '$(USERNAME)' --password-stdin <<<"$$password"

.PHONY: push
push: ## push what make image-xfs chart left in dist/ to REGISTRY, as OCI artefacts
	deploy/push.sh '$(REGISTRY)' '$(TAG)'

.PHONY: sign
sign: ## sign what make push has pushed, and attach the SBOMs, with cosign
	while read -r ref; do cosign sign --yes "$$ref" </dev/null; done <dist/pushed
	for sbom in dist/*-'$(TAG)'-*.cdx.json; do \
		name=$${sbom#dist/}; name=$${name%%-$(TAG)-*}; \
		cosign attest --yes --type cyclonedx --predicate "$$sbom" "$$(grep "^$(REGISTRY)/$$name@" dist/pushed)"; \
	done

.PHONY: manifests
manifests: ## write deploy/podnas.yaml from deploy/base
	deploy/manifests.sh

.PHONY: manifests-check
manifests-check: ## fail when deploy/podnas.yaml is stale
	deploy/manifests.sh --check

.PHONY: docs
docs: ## write what is made: the reference of commands, the chart's table of values, docs/performance.svg
	go test ./cmd/podnas -run '^TestReference$$' -count=1 -update
	go test ./test/docs -run '^(TestChartValues|TestPicture)$$' -count=1 -update

# In a release's files, and not in the image, where nothing shows them.
.PHONY: man
man: ## the commands' manual pages in dist/man, and as an archive in dist/
	rm -rf dist/man
	mkdir -p dist/man
	go test ./cmd/podnas -run '^TestManPages$$' -count=1 -man '$(CURDIR)/dist/man'
	tar --sort=name --mtime=@$(SOURCE_DATE_EPOCH) --owner=0 --group=0 --numeric-owner -C dist -c man | gzip -n >dist/podnas-man-$(TAG).tgz

.PHONY: docs-check
docs-check: ## the docs alone, which test checks too: reference, links, commands
	go test ./cmd/podnas -run '^TestReference' -count=1
	go test ./test/docs -count=1

.PHONY: chart-check
chart-check: ## fail when the Helm chart makes other objects than kubectl apply (Helm is built on first use, 2 minutes)
	$(SUITE) go test -json -tags chart -count=1 -timeout 30m ./test/chart

.PHONY: check
check: export SHORT = 1
check: ## what CI runs: test, lint, chart-check, a short fuzz, page, attack, vm, cluster, reproducible, e2e
	$(MAKE) test RACE=1
	$(MAKE) lint
	$(MAKE) chart-check
	$(MAKE) fuzz FUZZTIME=20000x CHANGED=1
	$(MAKE) page
	$(MAKE) attack
	$(MAKE) vm
	$(MAKE) cluster
	$(MAKE) reproducible e2e

.PHONY: clean
clean: ## remove what was built (not data/, the volumes of make run)
	rm -rf bin dist
