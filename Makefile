# make demo   builds everything and shows the main job on real data
# make test   all Rust and Python tests
# make test-peers  MPI, HeAT, distarray, Ray, xgboost_ray, lightgbm_ray, Modin, Dask, TPC-DS and GT4Py, each in an environment of its own (8 GB, in PEERS)
# make test-gpu  copies to and from a GPU of NVIDIA, a table of speeds, and peers that compute on it, in an environment of their own (several GB, in PEERS); skipped by name without one
# make test-queries  5,000 random queries against DuckDB (make test runs 300)
# make test-release  what the service and its clusters survive, as often as before a release: an hour or more
# make lint   formats, clippy, documentation, types, stubs
# make test-fuzz  fuzz targets of the loader, 60 s each (wants a C++ compiler), and a million changed messages, packets, manifests, parts of plans and sections of distributed arrays
# make bench  throughput of load and scan
# make bench-load  loading, beside Polars, DataFusion, DuckDB and pyarrow
# make bench-small  small queries, beside DuckDB, DataFusion and Polars
# make bench-asof  ASOF JOIN, beside DuckDB and Polars
# make bench-pivot  PIVOT, beside DuckDB and Polars
# make bench-sort  ORDER BY, beside DuckDB and Polars
# make bench-windows  windows, beside DuckDB
# make bench-storage  allocating storages, beside numpy
# make bench-share  opening tiles in another process, beside DoGet and pickling them
# make bench-share-ray  the same, and `ray.get` of the same tables in the same run
# make bench-serve  a server over loopback, beside pyarrow's, and 100 clients of small queries: fails where one is lost, or late
# make bench-soak  a server under mixed load for ten minutes: fails where an answer is wrong, or memory, descriptors, threads or segments stay
# make bench-cluster  TPC-H over three members of a cluster, beside one server
# make bench-scale  placement and planning for up to 1,000 members and 10 million tiles
# make bench-tpcds  the 99 queries of TPC-DS in memory, beside DuckDB
# make bench-tpch  the 22 queries of TPC-H in memory, beside DuckDB, Polars and DataFusion

VENV := .venv
PYTHON ?= python3
PEERS ?= $(HOME)/.cache/partgrid/peers
export CARGO_TARGET_DIR ?= $(CURDIR)/target
# One build at a time for two cores; DataFusion is compiled once, in the dev profile, for everything. What measures, or repeats a million times, has partgrid itself in that profile, too; tests have it without optimisation.
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.PHONY: demo test test-rust test-python test-peers test-gpu test-queries test-release test-fuzz extension lint bench bench-load bench-small bench-asof bench-pivot bench-sort bench-windows bench-storage bench-share bench-share-ray bench-serve bench-soak bench-tpch bench-tpcds bench-cluster bench-scale clean

demo: extension
	@$(VENV)/bin/python examples/demo.py

test: test-rust test-python

test-rust:
	cargo test --workspace --locked

# An environment of its own, over the libraries of .venv: what is tested is compiled in a fraction of the time, and what users have stays in .venv.
TESTED := $(CARGO_TARGET_DIR)/python

test-python: $(VENV)/.ready
	tests/install.sh $(TESTED)
	PATH="$(TESTED)/bin:$(PATH)" $(TESTED)/bin/python -m pytest tests/python -q -n 3

# The extension has the feature `cuda` by default; nothing of CUDA is needed to build it.
# The peers are installed where there is a device of the driver.
GPU_PEERS := $(if $(wildcard /dev/nvidiactl /dev/dxg),$(PEERS)/gpu)
test-gpu: extension $(addsuffix /.ready,$(GPU_PEERS))
	$(VENV)/bin/python -m pytest tests/gpu $(if $(GPU_PEERS),--ignore tests/gpu/test_peers.py) -v -s -rs -p no:cacheprovider
	$(if $(GPU_PEERS),$(IN_PEER) $(GPU_PEERS)/bin/python -m pytest tests/gpu/test_peers.py -v -rs -p no:cacheprovider)

# Other queries than those of `make test`; a failure names its seed.
test-queries: extension
	PARTGRID_RANDOM_QUERIES=5000 PARTGRID_RANDOM_SEED=1 $(VENV)/bin/python -m pytest -q -n 2 tests/python/query/test_random_queries.py

# The names are those of docs/reliability.md. One after the other: several measure times and memory.
test-release: extension
	PARTGRID_MIXED_SECONDS=600 PARTGRID_MIXED_CONNECTIONS=10000 PARTGRID_LOAD_QUERIES=1000 \
	PARTGRID_RESIDENT_BYTES=8e9 PARTGRID_SLOW_SECONDS=60 PARTGRID_SNAPSHOT_QUERIES=10000 \
	PARTGRID_CATALOG_KILLS=500 PARTGRID_MEMBER_KILLS=200 PARTGRID_LOAD_KILLS=500 PARTGRID_CLIENT_KILLS=20 PARTGRID_DISK_FAULTS=all PARTGRID_CANCELLED=all PARTGRID_CUT_SILENCE=client \
	PARTGRID_STORE_FAULTS=all PARTGRID_TPCH_SCALE=1 PARTGRID_HOSTILE_REQUESTS=100000 PARTGRID_HOSTILE_TEXTS=1000000 PARTGRID_HOSTILE_FILES=20000 \
	$(VENV)/bin/python -m pytest -v -s -rs -p no:cacheprovider $(RELEASE)
	$(VENV)/bin/python tests/benches/soak.py

RELEASE := $(addprefix tests/python/serve/test_,server_mixed.py server_load.py server_resident.py server_memory.py server_cut.py client_deaths.py upload_deaths.py hostile_requests.py hostile_rows.py hostile_sql.py) \
	$(addprefix tests/python/catalog/test_,snapshots.py catalog_deaths.py disk_faults.py disk_full.py hostile_catalog.py) \
	$(addprefix tests/python/cluster/test_,cluster_kills.py cluster_load_kills.py cluster_stores.py cluster_tpch.py)

# One environment after the other: they are large, and some start engines of their own.
test-peers: extension $(PEERS)/mpi/.ready $(PEERS)/mpich/.ready $(PEERS)/heat/.ready $(PEERS)/distarray/.ready $(PEERS)/ray/.ready $(PEERS)/modin/.ready $(PEERS)/opencl/.ready $(PEERS)/tpcds/.ready $(PEERS)/gt4py/.ready
	$(IN_PEER) $(PEERS)/mpi/bin/python -m pytest -q -p no:cacheprovider -rs tests/python/peers/test_mpi.py
	$(IN_PEER) $(PEERS)/mpich/bin/python -m pytest -q -p no:cacheprovider -rs tests/python/peers/test_mpi.py
	$(IN_PEER) $(PEERS)/heat/bin/python -m pytest -q -p no:cacheprovider -rs tests/python/peers/test_heat.py tests/python/peers/test_torch.py
	$(IN_PEER) $(PEERS)/distarray/bin/python -m pytest -q -p no:cacheprovider -rs tests/python/peers/test_distarray.py
	$(IN_PEER) $(PEERS)/ray/bin/python -m pytest -q -p no:cacheprovider -rs tests/python/peers/test_xgboost_ray.py
	$(IN_PEER) $(PEERS)/ray/bin/python -m pytest -q -p no:cacheprovider -rs tests/python/peers/test_ray.py tests/python/peers/test_ray_faults.py tests/python/peers/test_ray_nodes.py tests/python/peers/test_ray_refusals.py
	$(IN_PEER) $(PEERS)/modin/bin/python -m pytest -q -p no:cacheprovider -rs tests/python/peers/test_dask.py tests/python/peers/test_dask_cluster.py tests/python/peers/test_dask_moves.py tests/python/peers/test_dask_faults.py tests/python/peers/test_modin.py
	$(IN_PEER) $(PEERS)/opencl/bin/python -m pytest -q -p no:cacheprovider -rs tests/python/peers/test_opencl.py
	$(IN_PEER) $(PEERS)/tpcds/bin/python -m pytest -q -p no:cacheprovider -rs tests/python/peers/test_tpcds.py
	$(IN_PEER) $(PEERS)/gt4py/bin/python -m pytest -q -p no:cacheprovider -rs tests/python/peers/test_gt4py.py

IN_PEER := env -u VIRTUAL_ENV PYTHONPATH=$(CURDIR)/python:$(CURDIR)/tests/python

$(PEERS)/%/.ready: tests/python/peers/requirements/%.txt
	$(PYTHON) -m venv $(PEERS)/$*
	$(PEERS)/$*/bin/pip install --quiet --disable-pip-version-check -r $<
	$(if $(ALONE),$(PEERS)/$*/bin/pip install --quiet --disable-pip-version-check --no-deps -r $(ALONE))
	@touch $@

# Installed without what they ask for.
ALONE = $(filter %.no-deps.txt,$^)
$(PEERS)/distarray/.ready: tests/python/peers/requirements/distarray.no-deps.txt

# Built with other flags than everything else, so in a folder of its own.
test-fuzz: $(VENV)/.ready
	cargo install cargo-fuzz --version 0.13.2 --locked --quiet --root fuzz/tools
	CARGO_TARGET_DIR="$(CARGO_TARGET_DIR)/fuzz" $(VENV)/bin/python fuzz/run.py 60
	PARTGRID_FUZZ_CASES=1000000 CARGO_PROFILE_DEV_DEBUG_ASSERTIONS=true cargo test --workspace --locked --profile dev --lib --test it hostile

extension: $(VENV)/.ready
	@echo "compiling partgrid: the first time with DataFusion, some 20 minutes on two cores"
	maturin develop --locked --quiet -m python/Cargo.toml

$(VENV)/.ready: tests/python/requirements.txt
	@echo "installing what the tests and examples need into $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/python/requirements.txt
	@touch $@

lint: extension
	tests/check.sh

bench:
	cargo bench --workspace --locked --profile dev

bench-load: extension
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/benches/requirements.txt
	$(VENV)/bin/python tests/benches/load.py

bench-small: extension
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/benches/requirements.txt
	$(VENV)/bin/python tests/benches/small.py

bench-asof: extension
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/benches/requirements.txt
	$(VENV)/bin/python tests/benches/asof.py

bench-pivot: extension
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/benches/requirements.txt
	$(VENV)/bin/python tests/benches/pivot.py

bench-sort: extension
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/benches/requirements.txt
	$(VENV)/bin/python tests/benches/sorts.py

bench-windows: extension
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/benches/requirements.txt
	$(VENV)/bin/python tests/benches/windows.py

bench-storage: extension
	$(VENV)/bin/python tests/benches/storage.py

bench-share: extension
	$(VENV)/bin/python tests/benches/share.py

bench-share-ray: extension $(PEERS)/ray/.ready
	$(IN_PEER) $(PEERS)/ray/bin/python tests/benches/share.py

bench-serve: extension
	$(VENV)/bin/python tests/benches/serve.py

bench-soak: extension
	$(VENV)/bin/python tests/benches/soak.py

bench-tpch: extension
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/benches/requirements.txt
	$(VENV)/bin/python tests/benches/tpch.py

bench-tpcds: extension $(PEERS)/tpcds/.ready
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/benches/requirements.txt
	$(PEERS)/tpcds/bin/python tests/benches/tpcds.py --make
	$(VENV)/bin/python tests/benches/tpcds.py

bench-cluster: extension
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/benches/requirements.txt
	$(VENV)/bin/python tests/benches/cluster.py

bench-scale:
	cargo test --workspace --locked --profile dev --lib cluster::scale -- --ignored --nocapture

clean:
	rm -rf $(VENV) target
