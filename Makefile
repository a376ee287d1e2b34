# Two commands for newcomers: `make demo` and `make test`. The rest is listed by `make`.

ifdef ODEC_LLVM_PREFIX
# The environment wins over .cargo/config.toml, which names Debian's prefix.
export MLIR_SYS_220_PREFIX := $(ODEC_LLVM_PREFIX)
export TABLEGEN_220_PREFIX := $(ODEC_LLVM_PREFIX)
export LLVM_SYS_221_PREFIX := $(ODEC_LLVM_PREFIX)
export PATH := $(PATH):$(ODEC_LLVM_PREFIX)/bin
endif
# Where `make setup` puts Rust if there is none.
CARGO_HOME_BIN := $(if $(CARGO_HOME),$(CARGO_HOME),$(HOME)/.cargo)/bin
export PATH := $(CARGO_HOME_BIN):$(PATH)

ODEC := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)/release/odec

.DEFAULT_GOAL := help
.PHONY: help demo test docs pages fuzz hostile assemble profiles slopes bench products builds tokens curves systems cookbook setup data study mnist catalogues languages tensorboard browser perfetto bleu bpe ray build fmt lint clean

help: ## This list
	@echo 'odec: numerical schemes in, trained Transformers out'
	@echo
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'
	@echo
	@echo 'LLVM 22 elsewhere than in Debian: ODEC_LLVM_PREFIX=/path make …  (docs/install.md)'

demo: build data ## Install what is missing, then check, draw, build, train (3 minutes), evaluate and generate
	@scripts/demo.sh $(ODEC)

test: setup ## Install what is missing, then the whole suite
	@scripts/test.sh

docs: ## The documentation as a site, target/site/docs/index.html; installs mdBook into target/
	@scripts/docs.sh

pages: setup ## Pages of docs/ that odec prints: layers, parts, errors, schemes, methods, cookbook
	@cargo build --workspace
	@scripts/pages.sh $(dir $(patsubst %/,%,$(dir $(ODEC))))debug/odec

fuzz: setup ## Coverage-guided fuzzing of parser, formatter and compiler for ten minutes
	@scripts/fuzz.sh $(FUZZ_SECONDS)

hostile: setup ## Damaged and crafted inputs by the thousand: manifests, kernels, checkpoints, tokenizers, sources
	@ODEC_SURVIVAL_WHOLE=1 cargo test --quiet --workspace --test survival -- --nocapture
	@ODEC_FUZZ_ROUNDS=20000 cargo test --quiet --workspace --test front -- hostile::damaged_files

assemble: setup ## Every kernel of every model through NVIDIA's assembler; `make test` leaves most short ones out
	@scripts/ptxas.sh && ODEC_ASSEMBLE_WHOLE=1 cargo test --quiet --workspace --test gpu assemble -- --ignored --nocapture

profiles: build ## What the optimised build compiles all models to, beside what the build that tests run does (4 minutes)
	@cargo build --workspace
	@scripts/profiles.sh $(ODEC) $(dir $(patsubst %/,%,$(dir $(ODEC))))debug/odec

slopes: setup ## Thousands of random step programs: none converges more slowly than is proved
	@ODEC_SLOPES=$(or $(SLOPES),5000) cargo test --quiet -p odec-compiler --test front -- --nocapture slopes

bench: build ## The training step beside PyTorch's, for seven systems (half an hour and more; 5 GB for PyTorch)
	@scripts/venv.sh .venv-bench benches/requirements.txt
	@.venv-bench/bin/python benches/bench.py $(ODEC) $(BENCH_ARGS)

products: build ## The matrix products of a training step in isolation, beside OpenBLAS (a minute)
	@scripts/venv.sh .venv tests/reference/requirements.txt
	@.venv/bin/python benches/contractions.py $(ODEC) $(BENCH_ARGS)

builds: build ## Time of `odec build` with nothing compiled before, and the size of the code (a minute)
	@python3 benches/builds.py $(ODEC) $(BENCH_ARGS)

tokens: build ## Time of a training step at 1k to 16k tokens: attention beside linear attention and recurrences (4 minutes)
	@python3 benches/along_tokens.py $(ODEC) $(BENCH_ARGS)

curves: build ## Every system's training losses beside the float64 reference (10 minutes)
	@scripts/venv.sh .venv tests/reference/requirements.txt
	@OPENBLAS_NUM_THREADS=1 .venv/bin/python tests/reference/train.py $(ODEC)

systems: build ## docs/systems.md: every system's errors in f64, f32 and bf16, and its training beside the reference (15 minutes)
	@scripts/venv.sh .venv tests/reference/requirements.txt
	@OPENBLAS_NUM_THREADS=1 .venv/bin/python tests/reference/table.py $(ODEC)

cookbook: build data ## Every architecture of docs/cookbook.md: trained 150 steps, a few words of each (5 minutes)
	@scripts/cookbook.py $(ODEC) $(COOKBOOK_ARGS)

study: build data ## Nine schemes at equal FLOPs and at equal steps, three seeds each: docs/study.md (an hour)
	@scripts/study.sh $(ODEC)

setup: ## Install what is missing: packages, Rust
	@scripts/setup.sh

data: setup ## Fetch the Shakespeare corpus into data/
	@scripts/data.sh

mnist: ## Fetch 10,000 digits of MNIST into data/
	@scripts/mnist.sh

catalogues: ## Fetch 18,425 English messages of LibreOffice with German, and Dutch, translations into data/
	@scripts/catalogues.sh

languages: ## Fetch 40,000 messages of LibreOffice in ten languages into data/
	@scripts/languages.sh

tensorboard: build ## TensorBoard reads the event files of `odec export --metrics tensorboard` (a minute)
	@scripts/venv.sh .venv-tensorboard tests/reference/tensorboard.txt
	@.venv-tensorboard/bin/python tests/reference/tensorboard_reads.py $(ODEC)

browser: build ## The page of `odec report` in Chromium, at three widths, dark, printed and without scripts: target/browser
	@scripts/venv.sh .venv-browser tests/browser.txt
	@.venv-browser/bin/python tests/browser.py $(ODEC)

perfetto: build ## A trace of `odec profile` in Perfetto's own page, in Chromium: target/browser/perfetto.png
	@scripts/venv.sh .venv-perfetto tests/perfetto.txt
	@.venv-perfetto/bin/python tests/perfetto.py $(ODEC)

ray: build ## Explorations on two local Ray nodes whose workers are killed lose nothing (3 minutes; 300 MB for Ray)
	@scripts/venv.sh .venv-ray tests/on_ray.txt
	@.venv-ray/bin/python tests/on_ray.py $(ODEC)

bleu: build ## BLEU and chrF of a run on pairs: make bleu RUN=runs/messages
	@scripts/venv.sh .venv-bleu scripts/bleu.txt
	@.venv-bleu/bin/python scripts/bleu.py $(ODEC) $(RUN) $(BLEU_ARGS)

bpe: catalogues ## A tokenizer of byte pairs, learned from the catalogues: data/catalogue.bpe.json
	@scripts/venv.sh .venv-bleu scripts/bleu.txt
	@.venv-bleu/bin/python scripts/bpe.py data/catalogue.de.jsonl 2045 data/catalogue.bpe.json

build: setup ## The optimised binary
	@cargo build --release

fmt: ## Format the Rust code
	@cargo fmt --all

lint: setup ## Clippy, warnings are errors
	@cargo clippy --workspace --all-targets -- -D warnings

clean: ## Remove what was built and trained; keeps the data and the Python environments
	@rm -rf target runs ./*.odex
