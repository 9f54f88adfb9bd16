#!/usr/bin/env bash
# Installs the Python package for its tests into an environment of its own, over the libraries of .venv, and leaves that of users as it is. Here partgrid itself is not optimised, as in Rust tests: what these
# have compiled is used again, and the rest takes a tenth of the time.
#
#     tests/install.sh FOLDER    # FOLDER/bin/python has it afterwards
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
deps=$CARGO_TARGET_DIR/debug/deps

# Both profiles write a library of this name, and the one would be taken for the other.
mkdir -p "$deps"
built=$deps/lib_native.so
if [ -e "$built.used" ]; then mv "$built" "$built.tested" 2>/dev/null || true; mv "$built.used" "$built"; fi
restore() {
    [ ! -e "$built" ] || mv "$built" "$built.tested"
    [ ! -e "$built.used" ] || mv "$built.used" "$built"
    rm -rf "$wheels"
}
wheels=$(mktemp -d)
[ ! -e "$built" ] || mv "$built" "$built.used"
trap restore EXIT
[ ! -e "$built.tested" ] || mv "$built.tested" "$built"

CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG_ASSERTIONS=true maturin build --locked --quiet --profile dev --strip --auditwheel skip -m python/Cargo.toml -o "$wheels"
if [ "$("$folder/bin/python" --version 2>&1)" != "$(python --version)" ]; then
    rm -rf "$folder"
    python -m venv --without-pip "$folder"
fi
packages=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
python -c 'import site; print("import site; site.addsitedir(%r)" % site.getsitepackages()[0])' > "$packages/venv.pth"
python -m pip --python "$folder/bin/python" install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall "$wheels"/*.whl
