# Every target says what it does: `make help`.

GO        ?= go
PYTHON    ?= /usr/bin/python3
BIN       := bin
LINT      := .ci/tools/bin/golangci-lint
HELM      := .ci/tools/bin/helm
VULN      := .ci/tools/bin/govulncheck
SBOM      := .ci/tools/bin/cyclonedx-gomod
NFPM      := .ci/tools/bin/nfpm
SANITY    := .ci/tools/bin/csi-sanity
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS   := -s -w -X main.version=$(VERSION)
# What Kubernetes' programs say they are.
KUBE_VERSION := $(addprefix -X k8s.io/component-base/version.,gitVersion=v1.36.3 gitMajor=1 gitMinor=36)
# After that a package hangs: a busy machine with a slow disk takes ten times as long as others.
HANGS     := -timeout 40m
# The clients' suites, the tests of the whole, those in a browser and of packages have targets of their own.
PKGS      ?= $(shell $(GO) list ./... | grep -v -e /conformance -e /systemtest -e /browsertest -e /deploy/packages)

# NVML's header marks what it keeps for old programs; the bindings cover it all.
export CGO_CFLAGS ?= -g -O2 -Wno-deprecated-declarations

.DEFAULT_GOAL := help

##@ Build

.PHONY: build
build: ## Build bin/pailfs (static), bin/pailfs-gpu (cgo), bin/pailfs-kube, bin/pailfs-csi, bin/ossemu and bin/bench.
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/pailfs ./cmd/pailfs
	CGO_ENABLED=1 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/pailfs-gpu ./cmd/pailfs-gpu
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/pailfs-kube ./cmd/pailfs-kube
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/pailfs-csi ./cmd/pailfs-csi
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ossemu ./cmd/ossemu
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/bench ./bench

.PHONY: scheduler
scheduler: ## Build bin/pailfs-scheduler (static), kube-scheduler with the plugin; minutes when nothing of Kubernetes is compiled yet.
	cd deploy/sched/plugin && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS) $(KUBE_VERSION)' -o $(CURDIR)/$(BIN)/pailfs-scheduler ./pailfs-scheduler

.PHONY: install
install: ## Install what was built: pailfs, pailfs-gpu, pailfs-kube, pailfs-csi, the mount helper (/sbin) and the systemd unit (/etc), below $(DESTDIR).
	@test -x $(BIN)/pailfs || { echo "$(BIN)/pailfs is not there: run make build first, as yourself"; exit 1; }
	install -D -m 0755 $(BIN)/pailfs $(DESTDIR)/usr/local/bin/pailfs
	install -D -m 0755 $(BIN)/pailfs-gpu $(DESTDIR)/usr/local/bin/pailfs-gpu
	install -D -m 0755 $(BIN)/pailfs-kube $(DESTDIR)/usr/local/bin/pailfs-kube
	install -D -m 0755 $(BIN)/pailfs-csi $(DESTDIR)/usr/local/bin/pailfs-csi
	install -d -m 0755 $(DESTDIR)/sbin
	ln -sf /usr/local/bin/pailfs $(DESTDIR)/sbin/mount.fuse.pailfs
	ln -sf /usr/local/bin/pailfs $(DESTDIR)/sbin/mount.pailfs
	install -d -m 0755 $(DESTDIR)/etc/systemd/system
	sed 's#/usr/bin/pailfs#/usr/local/bin/pailfs#' deploy/systemd/pailfs@.service >$(DESTDIR)/etc/systemd/system/pailfs@.service

.PHONY: images
images: deps build ## Build the container images pailfs, pailfs-kube and pailfs-csi with buildah, tagged TAG (default latest), without a registry.
	deploy/docker/build $(BIN) $(or $(TAG),latest)

.PHONY: dist
dist: build $(SBOM) $(NFPM) ## Pack into dist/, reproducibly: programs with their SBOM (CycloneDX), deb, rpm, Python wheel and sources, SHA256SUMS.
	rm -rf dist
	.ci/dist $(BIN) dist '$(VERSION)'
	deploy/packages/build dist/pailfs-*-linux-*.tar.gz dist
	.ci/python dist
	.ci/sums dist

.PHONY: deps
deps: ## Install the Debian packages that tests and demo need.
	@.ci/install

.PHONY: clean
clean: ## Remove what was built and the demo's data.
	rm -rf $(BIN) .ci/tools/bin .demo dist

##@ See it work

.PHONY: demo
demo: deps build ## Mount a real dataset from an emulated bucket; read it cold, warm, from SSD and raw; draw the result.
	$(BIN)/bench demo $(DEMO_FLAGS)

.PHONY: example
example: deps build ## Train a network on single files of an emulated bucket; kill it, resume it, draw its curves.
	@mkdir -p .demo
	$(PYTHON) -B prefetch/python/examples/fashion_mnist/run.py --out .demo/fashion-mnist.svg $(EXAMPLE_FLAGS)

.PHONY: bench
bench: deps build ## Compare pailfs with other clients and the limits, in minutes; writes bench/results.
	$(BIN)/bench peers $(BENCH_FLAGS)

.PHONY: bench-full
bench-full: deps build ## The comparison at full sizes, and every target; hours.
	$(BIN)/bench peers --full $(BENCH_FLAGS)
	$(BIN)/bench targets

.PHONY: bench-manifest
bench-manifest: ## Measure manifests of OBJECTS objects (default 10000000; about 1.2 GB in BENCH_DIR, default a temporary directory).
	@$(if $(BENCH_DIR),,export BENCH_DIR=$$(mktemp -d); trap 'rm -rf $$BENCH_DIR' EXIT;) \
	  for run in Build:1x Open:20x Lookup:200000x ReadDir:3x; do \
	    $(GO) test -run '^$$' -bench "BenchmarkSnapshot$${run%:*}" -benchtime $${run#*:} -timeout 1h ./manifest -args -objects=$(or $(OBJECTS),10000000) || exit 1; \
	  done

##@ Test

STAGES := deps build lint vuln unit page python race packages-short crash-short torture-short conformance e2e-kube-short e2e-node-short fuzz-short bench-short demo-short

.PHONY: test
test: ## Everything that CI holds, and how long each stage takes.
	@built=; for stage in $(STAGES); do \
	  begin=$$(date +%s); $(MAKE) --no-print-directory $$built $$stage || exit; \
	  echo "stage $$stage: $$(($$(date +%s) - begin)) s"; \
	  test $$stage != build || built='-o build'; \
	done

.PHONY: check
check: fmt lint unit race ## What to run before a commit.

.PHONY: fmt
fmt: $(LINT) ## Format the code.
	$(LINT) fmt

# Those that look at the plugin alone: the others would read all of Kubernetes, for minutes.
PLUGIN_LINTERS := copyloopvar,depguard,errcheck,errorlint,forbidigo,godot,importas,ineffassign,misspell,nolintlint,revive,unconvert

.PHONY: lint
lint: $(LINT) ## Lint, including the import picture, the formatting and what is tracked.
	.ci/clean-tree
	$(LINT) run
	cd deploy/sched/plugin && $(CURDIR)/$(LINT) run --enable-only $(PLUGIN_LINTERS)
	$(GO) mod verify >/dev/null
	$(GO) mod tidy -diff
	cd deploy/sched/plugin && $(GO) mod tidy -diff

.PHONY: vuln
vuln: $(VULN) ## Look for known vulnerabilities in what is called; says it where the database is out of reach (GOVULNDB names a mirror).
	.ci/vuln-check
	.ci/vuln

.PHONY: unit
unit: build ## All tests, on real mounts, and those of the data path again on one processor.
	$(GO) test -p 1 $(HANGS) $(PKGS)
	GOMAXPROCS=1 $(GO) test -p 1 -count=1 -short $(HANGS) ./fs ./cache

.PHONY: page
page: build ## The status page in Debian's chromium; keeps pictures of it in .artifacts.
	@mkdir -p .artifacts
	$(SYSTEMTEST) $(HANGS) -artifacts -outputdir $(CURDIR)/.artifacts ./cmd/pailfs/internal/page/browsertest

.PHONY: python
python: build ## The Python client's types and tests, with real mounts.
	cd prefetch/python && mypy
	cd prefetch/python && $(PYTHON) -B -m pytest

.PHONY: race
race: build ## The tests of the data path under the race detector.
	$(GO) test -p 1 -race -short $(HANGS) $(filter-out %/fs/writeback,$(shell $(GO) list ./oss ./oss/credentials ./oss/limiter ./cache ./manifest/... ./fs/... ./prefetch/...))
	@# Two timers of one synctest bubble that run at once share what the detector keeps of them (runtime/time.go, unlockAndRun).
	GOMAXPROCS=1 $(GO) test -p 1 -race -short $(HANGS) ./fs/writeback

.PHONY: packages-short
packages-short: dist ## Packages installed, mounted by fstab, upgraded, removed and purged; packed again they are the same.
	$(GO) test -count=1 $(HANGS) ./deploy/packages

.PHONY: conformance
conformance: build ## The vendor's SDK suites and S3 clients against ossemu.
	$(GO) test -count=1 $(HANGS) ./oss/ossemu/conformance/...

# The tests of the whole on the program that was built.
SYSTEMTEST := PAILFS_SYSTEMTEST_PROGRAM=$(CURDIR)/$(BIN)/pailfs $(GO) test -count=1

.PHONY: crash
crash: build ## Faults, damage, outages and replaced objects under readers of the built programs, ROUNDS times (default 20).
	PAILFS_SYSTEMTEST_ROUNDS=$(or $(ROUNDS),20) $(SYSTEMTEST) -timeout 3h -skip '^TestTorture$$' ./cmd/pailfs/systemtest

.PHONY: crash-short
crash-short: build ## The same, two rounds each.
	PAILFS_SYSTEMTEST_ROUNDS=2 $(SYSTEMTEST) $(HANGS) -parallel 2 -skip '^TestTorture$$' ./cmd/pailfs/systemtest

RESULTS ?= .torture/results.jsonl

# The test programs whose tests are rounds, and what runs them.
TORTURED  := cmd/pailfs/systemtest fs cmd/pailfs/internal/mounting
TORTURE   := $(BIN)/torture -tests $(CURDIR)/$(BIN)/tests -program $(CURDIR)/$(BIN)/pailfs -commit $(VERSION)

.PHONY: torture-build
torture-build: build # What torture runs.
	$(GO) build -o $(BIN)/torture ./cmd/pailfs/systemtest/torture/run
	@mkdir -p $(BIN)/tests
	$(GO) test -c -o $(BIN)/tests $(addprefix ./,$(TORTURED))

.PHONY: torture
torture: torture-build ## Kills, power losses, failing stores, disks, memory, a soak, and all that is compared with ext4: ROUNDS (1000), KINDS, SEEDS=FROM-TO, SOAK (2h); hours.
	@mkdir -p $(dir $(RESULTS))
	$(TORTURE) -results $(RESULTS) -rounds $(or $(ROUNDS),1000) -kinds '$(KINDS)' -seeds '$(SEEDS)' -soak $(or $(SOAK),2h)

.PHONY: torture-short
torture-short: torture-build ## Some rounds of each kind, at reduced size.
	$(SYSTEMTEST) $(HANGS) -run '^TestTorture$$' ./cmd/pailfs/systemtest
	$(GO) test $(HANGS) ./cmd/pailfs/systemtest/torture/...
	@mkdir -p .torture
	$(TORTURE) -results .torture/short.jsonl -short -seeds 1-1

.PHONY: torture-sum
torture-sum: ## Summarize the results in FILES in cmd/pailfs/systemtest/TORTURE.md.
	$(GO) run ./cmd/pailfs/systemtest/torture/run -summary cmd/pailfs/systemtest/TORTURE.md $(or $(FILES),$(RESULTS))

# One program for everything that the tests start, compiled as lint compiles it, so that CI does it once.
KUBECP := cd deploy/sched/plugin && $(GO) build -ldflags '-s -w $(KUBE_VERSION)' -o $(CURDIR)/$(BIN)/kubecp ./e2e/kubecp
E2E    := cd deploy/sched/plugin && PAILFS_E2E_NODES=$$nodes $(GO) test -count=1 $(HANGS) -v -skip '^TestNode$$' ./e2e

.PHONY: e2e-kube
e2e-kube: build $(HELM) ## The scheduler and the node agent on a real Kubernetes control plane with 10,000 nodes; prints what is measured.
	$(KUBECP)
	nodes=10000; $(E2E)

.PHONY: e2e-kube-short
e2e-kube-short: build $(HELM) ## The same with 200 nodes.
	$(KUBECP)
	nodes=200; $(E2E)

# What has a kubelet of its own.
E2E_NODE := cd deploy/sched/plugin && $(GO) test -count=1 $(HANGS) -v

.PHONY: e2e-node
e2e-node: deps build e2e-csi ## The CSI driver, as it is deployed, on a real kubelet with containerd, and csi-sanity.
	$(KUBECP)
	$(E2E_NODE) -run '^TestNode$$' ./e2e

.PHONY: e2e-node-short
e2e-node-short: deps build ## A claim that is read on a real kubelet.
	$(KUBECP)
	$(E2E_NODE) -run '^TestNode$$/^a_claim_is_read$$' ./e2e

.PHONY: e2e-csi
e2e-csi: build $(SANITY) ## csi-sanity over the CSI driver that was built, with real mounts of an emulated bucket.
	$(GO) test -count=1 -timeout 15m -v ./deploy/csi/conformance

.PHONY: bench-short
bench-short: build ## A small run of every benchmark: that it works, not how fast.
	$(BIN)/bench targets --short
	$(BIN)/bench peers --short --out .demo/peers read/seq-cold read/small-cold write/ckpt list/10k
	$(BIN)/bench growth --short

.PHONY: demo-short
demo-short: build ## The demo at reduced size.
	$(BIN)/bench demo --short

.PHONY: fuzz
fuzz: ## Fuzz every decoder for FUZZTIME each (default 20s; 1000x is so many inputs).
	@for d in $$(grep -rlE --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u); do \
	  for f in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]*' $$d/*_test.go | cut -c6-); do \
	    echo "$$d $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(or $(FUZZTIME),20s) -fuzzminimizetime 100x $$d || exit 1; \
	  done; done

.PHONY: fuzz-short
fuzz-short: ## Fuzz every decoder with a thousand inputs, so that how long it takes decides nothing.
	@$(MAKE) --no-print-directory fuzz FUZZTIME=1000x

.PHONY: ci
ci: test ## What .ci/run calls.

##@ Tools

$(LINT): .ci/tools/go.mod .ci/tools/go.sum
	cd .ci/tools && $(GO) build -o bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(VULN): .ci/tools/go.mod .ci/tools/go.sum
	cd .ci/tools && $(GO) build -o bin/govulncheck golang.org/x/vuln/cmd/govulncheck

$(SBOM): .ci/tools/sbom/go.mod .ci/tools/sbom/go.sum
	cd .ci/tools/sbom && $(GO) build -trimpath -buildvcs=false -ldflags '-s -w' -o $(CURDIR)/$(SBOM) github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod

$(NFPM): .ci/tools/nfpm/go.mod .ci/tools/nfpm/go.sum
	cd .ci/tools/nfpm && $(GO) build -trimpath -buildvcs=false -ldflags '-s -w' -o $(CURDIR)/$(NFPM) github.com/goreleaser/nfpm/v2/cmd/nfpm

$(SANITY): .ci/tools/sanity/go.mod .ci/tools/sanity/go.sum
	cd .ci/tools/sanity && $(GO) build -ldflags '-s -w' -o $(CURDIR)/$(SANITY) github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity

$(HELM): .ci/tools/helm/go.mod .ci/tools/helm/go.sum
	cd .ci/tools/helm && $(GO) build -ldflags '-s -w' -o $(CURDIR)/$(HELM) helm.sh/helm/v3/cmd/helm

.PHONY: help
help: ## Show this help.
	@color=; test ! -t 1 || color=1; awk -v color=$$color 'BEGIN {FS = ":.*## "; if (color) {on = "\033[36m"; off = "\033[0m"}} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  %s%-14s%s %s\n", on, $$1, off, $$2}' $(MAKEFILE_LIST)
