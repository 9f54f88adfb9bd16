#!/usr/bin/env bash
# Everything that must hold before a change lands, beside the tests: formats, lints for each set of features, documentation, the stub, Python types and style.
# Needs the extension built (`make lint` does that first).
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python

step() { printf '\n== %s\n' "$*"; "$@"; }

step cargo fmt --all --check
step cargo clippy --workspace --all-targets --locked -- -D warnings
step cargo clippy --package partgrid --no-default-features --locked -- -D warnings
step cargo clippy --package partgrid --no-default-features --features parquet --locked -- -D warnings
step cargo clippy --package partgrid --no-default-features --features cloud --locked -- -D warnings
step cargo clippy --package partgrid --no-default-features --features sql --locked -- -D warnings
step cargo clippy --package partgrid --no-default-features --features serve --locked -- -D warnings
step cargo clippy --package partgrid --no-default-features --features distributed --locked -- -D warnings
step "$python" tests/licences.py
if command -v cargo-deny >/dev/null; then
    # Advisories come over the network.
    step cargo deny --locked check
else
    printf '\n== cargo deny: skipped, cargo-deny is not installed; advisories were not looked at\n'
fi
RUSTDOCFLAGS="-D warnings" step cargo doc --package partgrid --no-deps --locked
stub=$(mktemp -d)
trap 'rm -rf "$stub"' EXIT
step .venv/bin/maturin generate-stubs --quiet -m python/Cargo.toml -o "$stub"
step "$python" tests/stub.py "$stub/partgrid/_native.pyi"
step diff "$stub/partgrid/_native.pyi" python/partgrid/_native.pyi
step "$python" -m mypy python/partgrid
# What is imported only when it is used is found by `__getattr__`; a name that is not there is an error all the same.
printf '\n== mypy of a name that is not there\n'
if "$python" -m mypy -c 'import partgrid; partgrid.no_such_name'; then
    printf 'mypy accepts any name in partgrid: hide __getattr__ from it (TYPE_CHECKING)\n' >&2
    exit 1
fi
step "$python" -m mypy.stubtest partgrid._native --mypy-config-file mypy.ini
step .venv/bin/ruff format --check .
step .venv/bin/ruff check .
printf '\nall checks passed\n'
