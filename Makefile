# `make test` works on a new Debian machine that has Go, git and make; `make help` lists the rest.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GOLANGCI_VERSION := v2.15.0
BUF_VERSION      := v1.75.0

TOOLS    := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/weir-tools
GOLANGCI := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)/golangci-lint
BUF      := go run github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION)

PKG      ?= ./...
FUZZTIME ?= 10s
TESTFLAGS ?=

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 18

.PHONY: build
build: ## build the weir binary into bin/
	go build -o bin/weir ./cmd/weir

.PHONY: test
test: deps ## vet and test everything with the race detector
	go vet $(PKG)
	go test -race -timeout 15m $(TESTFLAGS) $(PKG)

.PHONY: polyglot
polyglot: ## test the producers in other languages (installs Node.js if it is missing)
	@.ci/need redis-server redis-cli gcc node npm
	go test -race -tags polyglot ./examples/polyglot

.PHONY: deps
deps: ## install what the tests need and is missing: redis-server, a C compiler for the race detector
	@.ci/need redis-server gcc

.PHONY: lint
lint: $(GOLANGCI) ## run golangci-lint and buf lint
	$(GOLANGCI) run $(PKG)
	cd messages && $(BUF) lint

.PHONY: fmt
fmt: $(GOLANGCI) ## format the Go code
	$(GOLANGCI) fmt $(PKG)

.PHONY: check-fmt
check-fmt: $(GOLANGCI) ## show what fmt would change, and fail if there is anything
	$(GOLANGCI) fmt --diff $(PKG)

.PHONY: generate
generate: ## generate the protobuf code
	cd messages && $(BUF) generate

.PHONY: check-generated
check-generated: ## fail if the committed generated code is not what generate makes
	@out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; \
	(cd messages && $(BUF) generate --output "$$out"); \
	mkdir "$$out/committed"; cp messages/*.pb.go "$$out/committed/"; mkdir "$$out/generated"; mv "$$out"/*.pb.go "$$out/generated/"; \
	(cd "$$out" && diff -ru committed generated) || { echo "messages/*.pb.go is not current: run make generate" >&2; exit 1; }

.PHONY: tidy
tidy: ## tidy both modules
	go mod tidy
	go -C cmd/peerbench mod tidy

.PHONY: fuzz
fuzz: deps ## run each fuzz test for FUZZTIME (default 10s)
	@for dir in $$(git grep -lE '^func Fuzz' -- '*_test.go' | xargs -rn1 dirname | sort -u); do \
		for f in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]*' $$dir/*_test.go | cut -c6- | sort -u); do \
			echo "== $$dir $$f"; \
			go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) ./$$dir; \
		done; \
	done

.PHONY: bench
bench: deps ## run the Go benchmarks (weir bench measures a whole worker)
	go test -run '^$$' -bench . -benchmem $(PKG)

.PHONY: accept
accept: deps ## the acceptance suite with the counts and times that it promises (a quarter of an hour)
	go test -count 1 -timeout 60m -parallel 1 -v ./cmd/weir/internal/acceptance -full

.PHONY: cover
cover: deps ## test with coverage over all packages: the total, and bin/cover.html
	@mkdir -p bin
	go test -timeout 15m -coverpkg=./... -coverprofile bin/cover.all.out $(PKG)
	@grep -v '\.pb\.go:' bin/cover.all.out > bin/cover.out
	@go tool cover -html bin/cover.out -o bin/cover.html
	@go tool cover -func bin/cover.out | tail -n 1

.PHONY: ci
ci: ## all that .ci/run checks
	bash .ci/run

.PHONY: tools
tools: $(GOLANGCI) ## install the linter into the cache folder (some minutes, once)

# Built beside its place and moved, so that a broken build leaves no half tool behind.
$(GOLANGCI):
	@echo "Installing golangci-lint $(GOLANGCI_VERSION) into $(dir $@): takes some minutes, once" >&2
	@mkdir -p $(TOOLS); tmp=$$(mktemp -d $(TOOLS)/install.XXXXXX); trap 'rm -rf "$$tmp"' EXIT; \
	GOFLAGS= GOBIN="$$tmp" go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION); \
	mkdir -p $(dir $@); mv "$$tmp/golangci-lint" $@
