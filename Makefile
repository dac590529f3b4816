# make test   everything that must pass, servers installed where that is possible
# make lint   the checks without the tests
# make long   the proofs that take minutes: crashes again and again; LONG=short is what CI has time for
# make bench  Pawl beside its peers, as ratios; BENCH="-list" shows what there is
# make fuzz   every fuzz test for FUZZTIME, two side by side
# make hunt   random histories with seeds that nobody has tried, for MINUTES

GO          ?= go
BENCH       ?=
FUZZTIME    ?= 30s
MINUTES     ?= 10
LONG        ?= full
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# Modules of their own, so that what they need never reaches a user's go.mod.
MODULES := internal/benchmarks examples/prometheus

# One Redis, one Redis Cluster and one PostgreSQL for the whole run.
WITH_SERVERS := $(GO) run ./internal/testenv/cmd/withservers

.PHONY: test lint long bench fuzz hunt install

# Many tests wait for leases: three packages at once keep two processors busy. Most of
# the processor's time would go to the race detector inside a simulated Redis and its
# Lua, which are not ours, and to the garbage collector. make lint has vetted.
RACE := -race -vet=off -gcflags='github.com/yuin/gopher-lua/...=-race=false' \
	-gcflags='github.com/alicebob/miniredis/...=-race=false'
test long: export GOGC = 300

test: install lint
	$(WITH_SERVERS) $(GO) test -p 3 $(RACE) -shuffle=on ./...
	@for module in $(MODULES); do ( cd $$module && $(GO) test ./... ) || exit 1; done

lint:
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt these files:"; echo "$$unformatted"; exit 1; }
	@for module in . $(MODULES); do \
		echo "lint $$module"; \
		( cd $$module && $(GO) mod tidy -diff && $(GO) vet ./... && \
			$(GO) fix -diff ./... && $(GO) run $(STATICCHECK) ./... ) || exit 1; \
	done

# A test is long when its name says so; testenv.Long skips it otherwise.
long: install
	PAWL_LONG=$(LONG) $(WITH_SERVERS) $(GO) test -p 3 $(RACE) -run Long -timeout 15m ./...

bench: install
	cd internal/benchmarks && $(GO) run . $(BENCH)

fuzz:
	@GO='$(GO)' scripts/fuzz.sh $(FUZZTIME)

hunt: install
	@GO='$(GO)' $(WITH_SERVERS) scripts/hunt.sh $(MINUTES)

install:
	@scripts/install.sh
