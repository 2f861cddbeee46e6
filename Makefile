# `make test` is everything that a change must pass; it installs what it needs. `make bench` measures.
.NOTPARALLEL:
.PHONY: test toolchain peers fmt lint unit suites commands examples schedules docs flaky schedules-program versions bench bench-peers model fuzz torture chaos deny

test: toolchain peers fmt lint unit suites commands examples schedules docs

toolchain:
	@command -v cargo >/dev/null || { echo "install Rust first: https://rustup.rs"; exit 1; }
	@command -v cc >/dev/null || { apt-get update --quiet && apt-get install --yes --quiet gcc libc6-dev; }
	@.ci/install-redis
	@cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
	@cargo clippy --version >/dev/null 2>&1 || rustup component add clippy

# The libraries whose locks must exclude ours, in target/peers.
peers:
	@.ci/install-peers

fmt:
	cargo fmt --all --check

lint:
	cargo clippy --workspace --all-targets --locked -- --deny warnings

# How many tests run at a time: most of them wait.
SUITES_THREADS = 16
COMMANDS_THREADS = 10
# The tests that compute: the model checker and the properties. `make schedules` runs them, in a program that is optimised.
COMPUTING = record::model record::properties

# Always of the whole workspace: a choice of packages is a choice of features, and builds what they share once more.
unit:
	cargo test --workspace --lib --bins --locked --no-fail-fast -- $(addprefix --skip ,$(COMPUTING))

# The library on every kind of store.
suites:
	cargo test --workspace $(call tests_of,tenure) --locked --no-fail-fast -- --test-threads $(SUITES_THREADS)
	cargo test --workspace --test conformance --locked --quiet says_what_it_left_out -- --nocapture

# The command-line tool.
commands:
	cargo test --workspace $(call tests_of,tenure-cli) --locked --no-fail-fast -- --test-threads $(COMMANDS_THREADS)

# Those of the documentation.
examples:
	cargo test --workspace --doc --locked

# The test programs of a crate: tests/*.rs and tests/*/main.rs.
tests_of = $(addprefix --test ,$(sort $(notdir $(basename $(wildcard crates/$(1)/tests/*.rs)) \
  $(patsubst %/main.rs,%,$(wildcard crates/$(1)/tests/*/main.rs)))))

# Permuted schedules: the tests of the library once more, with a mutex of the model in place of the real one, and optimised. All that it
# depends on is as the other tests built it.
schedules: schedules-program
	cd crates/tenure && "$$(sed --quiet 's/.*"executable":"\([^"]*\)".*/\1/p' ../../target/schedules.json)" schedules $(COMPUTING)

schedules-program:
	@mkdir -p target
	RUSTC_WORKSPACE_WRAPPER="$$PWD/.ci/rustc-for-schedules" cargo test --package tenure --package tenure-cli --lib --no-run --locked \
	  --message-format json-render-diagnostics >target/schedules.json

docs:
	RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --no-deps --locked --quiet

# Every test program of `make test`, again and again: prints how often each test failed, and keeps the output of failed runs in
# target/flaky. `make flaky RUNS=30 BUSY=2 ONLY="stores tenure"` runs two of them beside two busy loops; ONLY may also name tests.
flaky: toolchain peers
	@RUNS=$(or $(RUNS),30) BUSY=$(or $(BUSY),0) LIMIT=$(or $(LIMIT),1200) ONLY="$(ONLY)" TESTS="$(call tests_of,tenure) $(call tests_of,tenure-cli)" \
	  SUITES_THREADS=$(SUITES_THREADS) COMMANDS_THREADS=$(COMMANDS_THREADS) COMPUTING="$(COMPUTING)" .ci/flaky

# The conformance suite on Valkey 9.1, and on Redis 6.2, which has a cluster without what ours needs.
versions:
	@.ci/install-versions
	PATH="$$PWD/target/versions/valkey-9.1:$$PATH" cargo test --workspace --test conformance --locked --no-fail-fast -- --test-threads 16
	PATH="$$PWD/target/versions/redis-6.2:$$PATH" cargo test --workspace --test conformance --locked --no-fail-fast -- --test-threads 16 \
	  redis:: sentinel:: quorum::

# Speed, as ratios measured side by side in one run: prints a table, writes target/bench/results.json.
bench:
	@.ci/install-redis
	cargo bench --package tenure --bench compare --locked -- $(ONLY)

# Other locks on Redis beside ours; installs them under target/bench-peers. `ONLY="tenure redlock"` chooses.
bench-peers:
	@.ci/install-redis
	@command -v npm >/dev/null || { apt-get update --quiet && apt-get install --yes --quiet npm; }
	@python3 -c "import ensurepip" || { apt-get update --quiet && apt-get install --yes --quiet python3-venv; }
	test -x target/bench-peers/python/bin/python || python3 -m venv target/bench-peers/python
	target/bench-peers/python/bin/pip install --quiet --disable-pip-version-check redis==8.1.0
	npm install --silent --no-save --prefix target/bench-peers/node ioredis@5 redlock@5.0.0-beta.2 redis-semaphore@5.8.0
	cargo run --release --quiet --manifest-path peers/Cargo.toml --target-dir target/bench-peers/rust -- $(ONLY)

# The worlds of the model checker that take minutes.
model:
	TENURE_MODEL=large cargo test --release --package tenure --lib --locked model -- --nocapture

# More cases for every property test.
fuzz:
	PROPTEST_CASES=100000 cargo test --release --workspace --lib --locked

# Processes that are stopped and killed while they share a directory, for longer: `make torture SECONDS=600`.
torture:
	TORTURE_SECONDS=$(or $(SECONDS),60) cargo test --package tenure --lib --locked torture -- --nocapture

# Clients that share locks while their servers are killed, paused, cut off and replaced, and slots move, for longer:
# `make chaos SECONDS=600 ONLY=the_master_is_paused`.
chaos: export TENURE_SOAK_SECONDS = $(or $(SECONDS),60)
chaos:
	@.ci/install-redis
	cargo test --package tenure --test stores --locked -- failover::sentinel::$(ONLY) --include-ignored --nocapture --test-threads 8
	cargo test --package tenure --test stores --locked -- layered::processes:: quorum::processes:: cluster::load:: --nocapture --test-threads 1

# Licences and advisories of the dependencies; needs cargo-deny.
deny:
	cargo deny check
