# `make test` is everything that a change must pass; it installs what it needs. `make bench` measures.
.PHONY: test toolchain peers fmt lint unit schedules docs bench bench-peers model fuzz torture chaos deny

# Permuted schedules need their own build: a mutex of the model in place of the real one.
SCHEDULES := RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/schedules

test: toolchain peers fmt lint unit schedules docs

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

unit:
	cargo test --package tenure --lib --locked --profile explore
	cargo test --workspace --exclude tenure --lib --bins --locked
	cargo test --workspace --exclude tenure-cli --test '*' --locked --no-fail-fast -- --test-threads 10
	cargo test --package tenure-cli --test '*' --locked --no-fail-fast -- --test-threads 6
	cargo test --package tenure --test conformance --locked --quiet says_what_it_left_out -- --nocapture
	cargo test --workspace --doc --locked

schedules:
	$(SCHEDULES) cargo clippy --package tenure --lib --tests --locked -- --deny warnings
	$(SCHEDULES) cargo test --package tenure --lib --locked schedules

docs:
	RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --no-deps --locked --quiet

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
	TORTURE_SECONDS=$(or $(SECONDS),60) cargo test --package tenure --lib --locked --profile explore torture -- --nocapture

# Clients that share locks while their servers are killed, paused, cut off and replaced, and slots move, for longer: `make chaos SECONDS=600 ONLY=paused`.
chaos:
	@.ci/install-redis
	TENURE_SOAK_SECONDS=$(or $(SECONDS),60) cargo test --package tenure --test failover --locked -- $(ONLY) --include-ignored --nocapture --test-threads 8
	TENURE_SOAK_SECONDS=$(or $(SECONDS),60) cargo test --package tenure --test layered --test quorum --locked -- processes:: --nocapture
	TENURE_SOAK_SECONDS=$(or $(SECONDS),60) cargo test --package tenure --test cluster --locked -- load:: --nocapture

# Licences and advisories of the dependencies; needs cargo-deny.
deny:
	cargo deny check
