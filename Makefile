# Targets are for a Debian 12 machine as root; scripts/install-deps says what
# it installs and why.
GO ?= go
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.7.0
PACKAGES = ./...

.PHONY: build profile test demo demo-k8s lint generate check-generated bench bench-gateway cover clean deps

# By the data path's profile (docs/decisions/0096-built-by-profile.md). The first
# build compiles all dependencies that way: some minutes.
build:
	$(GO) build -pgo=cmd/picot/hot.pgo -o bin/ ./cmd/...

# Measures that profile anew: when the data path has changed.
profile:
	$(GO) test ./fastpath -run '^$$' -bench 'DecideAndEncapsulate|DeliverLocally|BenchmarkAnswer|Round' \
		-benchtime 1s -cpuprofile cmd/picot/hot.pgo -o /dev/null

deps:
	scripts/install-deps

test: deps
	scripts/test $(PACKAGES)

demo: deps build
	bin/picot demo

# The same with a real kube-apiserver, and what kubectl sees of it.
demo-k8s: deps build
	scripts/demo-k8s

lint:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -d $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

generate:
	$(GO) generate ./...

check-generated: generate
	git diff --exit-code

bench: deps build
	bin/picot bench

bench-gateway: deps
	$(GO) run ./gateway/gwbench

cover: deps
	$(GO) test -coverprofile=cover.out ./...
	$(GO) tool cover -func=cover.out | tail -n 1

clean:
	rm -rf bin cover.out

# 100 k FDB entries and 200 k Neighbors with 4,000 further watches open; the
# server takes about 5 GB.
.PHONY: bench-k8s
bench-k8s: deps
	PICOT_SCALE=100000 PICOT_WATCHES=4000 $(GO) test ./test/e2ek8s -run TestScale -v -timeout 30m
