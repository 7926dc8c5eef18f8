# Everything needs Go and nothing else, unless a target says so.
GO ?= go
SPC_SHARED ?= $(abspath ../shared)
export SPC_SHARED
FUZZTIME ?= 10m
PROTOC_GEN_GO_GRPC = google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
GRPCURL = github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
NVCC = out/nvcc/nvcc
# Debian's, which has PyTorch.
PYTHON ?= /usr/bin/python3
# The folder of cuda.h, of CUDA 11 or 12.
CUDA_INCLUDE ?= $(CURDIR)/out/nvcc/usr/include
WITH_CUDA = CGO_ENABLED=1 CGO_CFLAGS="-O2 -I$(CUDA_INCLUDE)"

.PHONY: proto module module-check build help build-cuda gpu check-cuda demo demo-model test check format vet staticcheck race cross
.PHONY: conformance e2e accuracy accuracy-quick budgets models kernels kernels-check asm asm-check fuzz diff diff-mutants bench-ort
.PHONY: bench-sparse bench-commits regret predict fit zoo zoo-avx2 zoo-graphs zoo-python page-libs page-pictures serve-clients serve-tools
.PHONY: serve-python serve-load serve-chaos image-root deploy-check clean large avx512

build: ## build bin/spc
	@mkdir -p bin
	$(GO) build -trimpath -o bin/spc ./cmd/spc

help: ## what each target does
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

build-cuda: $(CUDA_INCLUDE)/cuda.h ## build bin/spc for GPUs too (Linux on x86-64; needs a C compiler and cuda.h, which is fetched with apt)
	@mkdir -p bin
	$(WITH_CUDA) $(GO) build -tags cuda -trimpath -o bin/spc ./cmd/spc

demo: build ## compile the model that the repository ships, run it, and see why
	@./demo/run.sh

demo-model: ## train the demo's model again from its seed and compare its accuracy
	$(GO) run ./demo/train -o out/demo -check demo/model.onnx

# Without what make vet finds, and without what only debuggers read, which take a quarter of the time to build.
GO_TEST = $(GO) test -vet=off -ldflags=-w

test: ## every test; those that need ../shared or a C compiler are skipped by name without
	$(GO_TEST) -timeout 30m ./tests/simt ./tests/gpu ./... # those that take longest first
	$(GO_TEST) -short -tags noasm ./backend/... ./passes/obs # the portable kernels
	@# The kernels for AVX2, where those above were for more.
	@if ! [ -e /proc/cpuinfo ] || grep -q -e avx512f -e avx_vnni /proc/cpuinfo; then set -x; \
		$(GO_TEST) -exec 'env GODEBUG=cpu.avx512f=off,cpu.avxvnni=off' ./backend/cpu/...; fi

check: format vet staticcheck race cross ## what CI checks beside the tests

format: ## that gofmt changes nothing
	@bad=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$bad" ] || { echo "not gofmt-ed:"; echo "$$bad"; exit 1; }

vet: ## go vet, for arm64 too
	$(GO) vet ./...
	GOARCH=arm64 $(GO) vet ./...

staticcheck: ## staticcheck (needs its download)
	$(GO) run $(STATICCHECK) ./...

gpu: $(CUDA_INCLUDE)/cuda.h ## into out/gpu what tests/gpu/run.sh needs on a machine with a GPU and no Go
	@mkdir -p out/gpu
	$(WITH_CUDA) $(GO) build -tags cuda -trimpath -ldflags "-s -w" -o out/gpu/spc ./cmd/spc
	$(WITH_CUDA) $(GO) test -c -tags cuda -trimpath -ldflags "-s -w" -o out/gpu/gpu.test ./tests/gpu
	$(GO) build -trimpath -ldflags "-s -w" -o out/gpu/archs ./tests/archs/gen
	$(GO) build -trimpath -ldflags "-s -w" -o out/gpu/report ./tests/gpu/cmd
	CGO_ENABLED=1 $(GO) build -trimpath -ldflags "-s -w" -buildmode=c-shared -o out/gpu/libspcgpu.so ./tests/gpu/lib
	git rev-parse --short=12 HEAD >out/gpu/commit
	sha256sum <backend/cuda/image/manifest.json >out/gpu/manifest

# Packages that the tag cuda changes, and who calls them.
TAGGED = . ./backend/cuda/... ./tests/gpu/... ./cmd/spc

check-cuda: $(CUDA_INCLUDE)/cuda.h ## vet and staticcheck with the tag cuda
	$(WITH_CUDA) $(GO) vet -tags cuda $(TAGGED)
	$(WITH_CUDA) $(GO) run $(STATICCHECK) -tags cuda $(TAGGED)

# Packages whose tests run goroutines; kernels of formats do so in one of theirs.
CONCURRENT = . ./serve/... ./backend ./backend/cpu ./backend/cuda ./backend/shapecache ./backend/format ./backend/format/emit ./backend/format/sparse ./backend/ref \
	./client ./data ./internal/... ./ir ./ir/onnx/... \
	./passes/calib ./passes/choose ./passes/obs ./passes/permute ./passes/prune ./passes/recon ./passes/steps

race: ## the race detector on the concurrent packages (needs a C compiler)
	@# Kernels of every instruction set run one at a time there.
	CGO_ENABLED=1 $(GO_TEST) -timeout 30m -race -short -skip 'OfEveryInstructionSet$$' $(CONCURRENT)
	CGO_ENABLED=1 $(GO_TEST) -race -short -run TestKernelsMayRunConcurrently ./backend/format/...

cross: ## the pure Go paths of other processors
	GOOS=linux GOARCH=arm64 CGO_ENABLED=0 $(GO) build ./...
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 $(GO) build ./...
	GOOS=windows GOARCH=amd64 CGO_ENABLED=0 $(GO) build ./...

conformance: ## the official ONNX suite in $(SPC_SHARED), through the compiler and the interpreter, and onnx-go's operator tests
	$(GO) run ./tests/conformance/cmd

e2e: ## the real models in $(SPC_SHARED): outputs, sizes, times
	$(GO) run ./tests/e2e/cmd

accuracy: build ## spc eval on the real models and data in $(SPC_SHARED): dense against their baselines, and pruned (hours)
	$(GO) run ./tests/e2e/accuracy -spc bin/spc
	$(GO) run ./tests/e2e/accuracy -spc bin/spc -pruned -save tests/e2e/results/pruned.json -table docs/results/accuracy.md

large: build ## the memory and the speed of compile and prune on a generated model of GIGABYTES=12 in FOLDER=out/large, which takes three times that there (Linux; half an hour)
	$(GO) run ./tests/large/cmd -gigabytes $(or $(GIGABYTES),12) -folder $(or $(FOLDER),out/large) $(ARGS)

budgets: build ## budgets of trained models in $(SPC_SHARED), and whether what is promised holds (two hours)
	$(GO) run ./tests/e2e/budgets -spc bin/spc -save tests/e2e/results/budgets.json -table docs/results/budgets.md

accuracy-quick: build ## the dense models, and a few prunings of the smallest
	$(GO) run ./tests/e2e/accuracy -spc bin/spc
	$(GO) run ./tests/e2e/accuracy -spc bin/spc -pruned -run stories -cells 50,2:4 -reconstruct no -strict
	$(GO) run ./tests/e2e/accuracy -spc bin/spc -pruned -run resnet20 -cells 2:4 -reconstruct no -strict

REQUESTS ?= 1000000

serve-load: build ## what spc serve adds to a bare echo, and what running requests of many clients together gains, into tests/serve/load/results and docs/results/serving.md (ten minutes; ARGS='-sittings 5 -only minilm')
	@mkdir -p tests/serve/load/results
	$(GO) build -o out/serve-load ./tests/serve/load/cmd
	out/serve-load -spc bin/spc -save tests/serve/load/results/load.json -table docs/results/serving.md $(ARGS)

serve-chaos: build ## spc serve among clients that disconnect, send garbage and stall, while models are replaced and it is killed (REQUESTS=1000000, SEED=1 for the same again, RACE=1 under the race detector)
	$(if $(RACE),CGO_ENABLED=1 $(GO) build -race -o out/spc-race ./cmd/spc)
	$(GO) run ./tests/serve/chaos/cmd -spc $(if $(RACE),out/spc-race,bin/spc) -requests $(REQUESTS) $(if $(filter command line,$(origin SEED)),-seed $(SEED)) $(ARGS)

models: ## well-known architectures with random weights, into models/
	$(GO) run ./tests/archs/gen -o models

fuzz: ## each fuzz target in turn for FUZZTIME
	@FUZZTIME=$(FUZZTIME) ./tests/fuzz/run.sh

# Graphs of a seed from a number on, and FRESH ones of a fresh seed; with DURATION as
# many fresh ones as that gives time for. SEED, FROM and COUNT=1 repeat one.
SEED ?= 1
FROM ?= 0
COUNT ?= $(if $(DURATION),0,5000)
FRESH ?= 0

diff: ## random graphs, compiled and run, against the interpreter: what differs goes into out/diff (DURATION=1h goes on, SEED=1 FROM=7 COUNT=1 repeats, ORT=1 compares the interpreter with ONNX Runtime)
	$(GO) run ./tests/diff/cmd -seed $(SEED) -from $(FROM) -count $(COUNT) -fresh $(FRESH) $(if $(DURATION),-duration $(DURATION)) $(if $(ORT),-ort out/ort)

diff-mutants: ## that random graphs find faults: each of those that tests/diff lists is planted (half an hour)
	$(GO) run ./tests/diff/cmd mutants

proto: ## what is generated of protocol buffers (needs protoc, and a download)
	@mkdir -p out
	$(GO) build -o out/protoc-gen-go google.golang.org/protobuf/cmd/protoc-gen-go
	GOBIN=$(CURDIR)/out $(GO) install $(PROTOC_GEN_GO_GRPC)
	protoc --plugin=out/protoc-gen-go --go_out=. --go_opt=module=$$($(GO) list -m) ir/onnx/onnxpb/*.proto serve/oip/oippb/*.proto
	protoc --plugin=out/protoc-gen-go-grpc --go-grpc_out=. --go-grpc_opt=module=$$($(GO) list -m) serve/oip/oippb/*.proto

module: ## another path for the module: NAME=example.org/you/spc (needs protoc)
	$(GO) run ./internal/rename $(NAME)
	$(MAKE) proto

module-check: ## that the module builds, and tests that name packages pass, under another path
	rm -rf out/module
	git clone -q . out/module
	$(MAKE) -C out/module module NAME=example.org/you/spc
	cd out/module && $(GO) vet ./... && $(GO) test -short ./tests/imports ./tests/docs ./ir/... ./internal/rename && $(GO) test -run ^Example .
	rm -rf out/module

asm: ## the assembly, from the programs in internal/asmgen
	$(GO) run -C internal/asmgen .

asm-check: ## that the assembly is what internal/asmgen writes
	$(GO) run -C internal/asmgen . -check

# Packages whose kernels differ with AVX-512, those that take longest first.
AVX512 = ./backend/cpu $(addprefix ./backend/format/,ukernel sparse block ikernel nm ell hyb bitmap group dense csr pair i8 emit) \
	$(addprefix ./backend/cpu/,winograd vec plane tile) ./passes/obs ./tests/avx512

avx512: ## the tests of kernels for AVX-512 on an emulated processor, for machines without (Debian's apt, cpio, xorriso; PACKAGES=./backend/format/group TESTS=Kernels SKIP=TestGemm)
	tests/avx512/run.sh out/bochs $(or $(PACKAGES),$(AVX512))

kernels: $(NVCC) ## the kernels for GPUs, with the CUDA compiler that is fetched for it (needs apt)
	@mkdir -p out
	$(GO) run ./backend/cuda/include >out/numbers.cuh
	mv out/numbers.cuh backend/cuda/include/spc/numbers.cuh
	sh backend/cuda/image/build.sh $(NVCC) backend/cuda/image

kernels-check: $(NVCC) ## that they compile, and to what is in the repository (PART=0/3 every third of them, from the first on)
	sh backend/cuda/image/check.sh $(NVCC) out/image $(PART)

$(CURDIR)/out/nvcc/usr/include/cuda.h: $(NVCC)

out/nvcc/nvcc:
	sh backend/cuda/image/nvcc.sh out/nvcc

bench-ort: build out/ort/node_modules ## every row of tests/bench against ONNX Runtime, into tests/bench/results and docs/results/speed.md (needs node and npm)
	$(GO) run ./tests/bench/cmd ort --save tests/bench/results
	$(GO) run ./tests/bench/cmd docs

bench-sparse: ## pruned models against their own dense compile, into tests/bench/results; with ZOO=1 members of the zoo in out/zoo, with ARGS='--profile native --resume' others of its flags
	$(GO) run ./tests/bench/cmd sparse --save tests/bench/results $(if $(ZOO),--zoo --models out/zoo) $(ARGS)

regret: ## how much longer the formats that are chosen take than the best, over 500 random problems, by prediction and tuned, into tests/bench/results
	$(GO) run ./tests/bench/cmd regret --save tests/bench/results
	$(GO) run ./tests/bench/cmd regret --tune --save tests/bench/results

predict: zoo-python ## what members of the zoo are predicted to take by this machine's profile, and what they take, into tests/bench/results (needs spc devices --measure, and apt)
	$(GO) run ./tests/bench/cmd predict --profile native --python $(PYTHON) --save tests/bench/results

fit: ## measure this machine for two minutes, and make a profile NAME of it that comes with spc; with FROM=FILE fit to what was measured before
	$(GO) run ./tests/bench/cmd fit --name $(NAME) $(if $(FROM),--from $(FROM))

bench-commits: ## every row of tests/bench by spc of the commit OLD and of this tree, in turns
	$(GO) run ./tests/bench/cmd commits --old $(OLD)

zoo: build zoo-python out/ort/node_modules ## the members of tests/zoo/list against ONNX Runtime, dense and pruned, into tests/zoo/results and the documents (needs node, npm and apt; ROWS=GLOB measures some, and saves them beside those of the same commit)
	$(GO) run ./tests/bench/cmd zoo --python $(PYTHON) --save tests/zoo/results $(if $(ROWS),'$(ROWS)')
	$(GO) run ./tests/bench/cmd docs

zoo-avx2: build zoo-python out/ort/node_modules ## the same on one thread, spc with the instructions of AVX2 alone, into tests/zoo/results/avx2
	$(GO) build -o out/bench ./tests/bench/cmd
	GODEBUG=cpu.avx512f=off out/bench zoo --threads 1 --python $(PYTHON) --save tests/zoo/results/avx2 $(if $(ROWS),'$(ROWS)')
	$(GO) run ./tests/bench/cmd docs

zoo-graphs: zoo-python out/ort/node_modules ## the zoo's graphs in small forms, without weights, and what ONNX Runtime makes of them, into tests/zoo/graphs (needs node, npm and apt)
	$(PYTHON) tests/zoo/export/export.py --small --out out/zoo/small
	$(GO) run ./tests/zoo/cmd graphs --models out/zoo/small
	$(GO) run ./tests/zoo/cmd forms

zoo-forms: out/ort/node_modules ## the zoo's transformers as ONNX Runtime saves them, and with weights of 4 bits, into folders of tests/zoo/graphs (needs node and npm)
	$(GO) run ./tests/zoo/cmd forms

contrib-cases: out/ort/node_modules ## what ONNX Runtime computes with operators of its own, and with small decoders in f16, into tests/contrib/cases (needs node and npm; RUN='*Gelu' or RUN=plain for some)
	$(GO) run ./tests/contrib/gen $(if $(RUN),-run '$(RUN)')

zoo-python: ## the packages that export the zoo (needs apt, unless they are there)
	@$(PYTHON) -c 'import onnx, torch, torchvision' 2>/dev/null || apt-get install -qq -y python3-torch python3-torchvision python3-onnx >/dev/null 2>&1 || \
		{ echo "the zoo needs Debian's python3-torch, python3-torchvision and python3-onnx, which could not be installed"; exit 1; }

out/ort/node_modules:
	@command -v node >/dev/null && command -v npm >/dev/null || { echo "ONNX Runtime needs node and npm, which bring it"; exit 1; }
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix out/ort onnxruntime-node@1.30.0

page-libs: ## the libraries of the page of spc inspect, of the versions that internal/page/libs.sh names (needs npm)
	internal/page/libs.sh

page-pictures: build ## the pictures of that page, and of that of spc serve, in docs/pictures (needs Chromium, and the models in $(SPC_SHARED))
	$(GO) run ./tests/archs/gen -only resnet50,minilm -o out/page
	bin/spc compile out/page/resnet50.onnx -o out/page/resnet50.spx --sparsity 0.8
	bin/spc compile out/page/minilm.onnx -o out/page/minilm.spx --sparsity 0.8 --pattern uniform-block:4x1 --dim sequence=128
	bin/spc compile $(SPC_SHARED)/models/yolox-nano/model.onnx -o out/page/yolox-nano.spx --sparsity 0.7
	$(GO) run ./tests/page/cmd -spc bin/spc -models out/page -o docs/pictures

serve-clients: build serve-tools ## clients that others wrote call spc serve; with SAVE=1 what came of it goes into tests/serve/results and docs/results/protocol.md
	$(GO) run ./tests/serve/cmd $(if $(SAVE),-save tests/serve/results/protocol.json -table docs/results/protocol.md) -python $(PYTHON)

serve-tools: out/serve/grpcurl out/serve/node_modules serve-python ## those clients (needs node, npm, apt, and a download)

out/serve/grpcurl:
	GOBIN=$(CURDIR)/out/serve $(GO) install $(GRPCURL)

out/serve/node_modules: tests/serve/clients/package-lock.json
	@mkdir -p out/serve
	cp tests/serve/clients/package.json tests/serve/clients/package-lock.json out/serve
	npm ci --silent --no-audit --no-fund --ignore-scripts --prefix out/serve
	touch $@

serve-python: ## the Python packages among them (needs apt, unless they are there)
	@$(PYTHON) -c 'import grpc, grpc_tools, geventhttpclient, rapidjson, httpx' 2>/dev/null || { apt-get update -qq && \
		apt-get install -qq -y --no-install-recommends python3-grpcio python3-grpc-tools python3-geventhttpclient python3-rapidjson python3-httpx; } >/dev/null 2>&1 || \
		{ echo "Debian's python3-grpcio, python3-grpc-tools, python3-geventhttpclient, python3-rapidjson and python3-httpx could not be installed"; exit 1; }

# Processors that out/container is made for.
ARCHS ?= $(shell $(GO) env GOARCH)

image-root: ## out/container, what deploy/Dockerfile makes a container of, for each of ARCHS
	@for arch in $(ARCHS); do mkdir -p out/container/$$arch && \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build -trimpath -ldflags "-s -w" -o out/container/$$arch/spc ./cmd/spc || exit 1; done

deploy-check: image-root ## that what is in deploy is what Kubernetes and KServe take, and that the container's files serve as they say (needs root, and downloads)
	$(GO) run ./tests/deploy/kserve -o out/kserve
	$(GO) test -C tests/deploy/check -count=1 ./...
	SPC_CONTAINER=yes $(GO) test -count=1 ./tests/deploy/...

clean: ## remove bin, out and models
	rm -rf bin out models
