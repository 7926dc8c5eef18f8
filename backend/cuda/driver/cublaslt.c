//go:build cuda && linux && amd64

#define _GNU_SOURCE // for dladdr

#include "cublaslt.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

struct spc_lt {
  char *path;
  size_t (*version)(void);
  const char *(*name)(int status); // null before 11.4
  int (*create)(void **handle);
  int (*close)(void *handle);
  int (*operationCreate)(void **operation, int compute, int scale);
  int (*operationSet)(void *operation, int attribute, const void *value, size_t bytes);
  int (*operationDestroy)(void *operation);
  int (*layoutCreate)(void **layout, int type, uint64_t rows, uint64_t cols, int64_t distance);
  int (*layoutSet)(void *layout, int attribute, const void *value, size_t bytes);
  int (*layoutDestroy)(void *layout);
  int (*preferenceCreate)(void **preference);
  int (*preferenceSet)(void *preference, int attribute, const void *value, size_t bytes);
  int (*preferenceDestroy)(void *preference);
  int (*heuristic)(void *handle, void *operation, void *a, void *b, void *c, void *d, void *preference, int wanted, spc_lt_heuristic *found, int *count);
  int (*matmul)(void *handle, void *operation, const void *alpha, const void *A, void *a, const void *B, void *b, const void *beta, const void *C, void *c,
                void *D, void *d, const uint64_t *algo, void *workspace, size_t bytes, void *stream);
};

spc_lt *spc_lt_open(const char *path, const char **why) {
  *why = NULL;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    *why = dlerror();
    return NULL;
  }
  spc_lt *lib = calloc(1, sizeof *lib);
  if (!lib)
    abort();
  lib->path = strdup(path);
  struct {
    void *into;
    const char *name;
    int optional;
  } calls[] = {
      {&lib->version, "cublasLtGetVersion", 0},
      {&lib->name, "cublasLtGetStatusName", 1},
      {&lib->create, "cublasLtCreate", 0},
      {&lib->close, "cublasLtDestroy", 0},
      {&lib->operationCreate, "cublasLtMatmulDescCreate", 0},
      {&lib->operationSet, "cublasLtMatmulDescSetAttribute", 0},
      {&lib->operationDestroy, "cublasLtMatmulDescDestroy", 0},
      {&lib->layoutCreate, "cublasLtMatrixLayoutCreate", 0},
      {&lib->layoutSet, "cublasLtMatrixLayoutSetAttribute", 0},
      {&lib->layoutDestroy, "cublasLtMatrixLayoutDestroy", 0},
      {&lib->preferenceCreate, "cublasLtMatmulPreferenceCreate", 0},
      {&lib->preferenceSet, "cublasLtMatmulPreferenceSetAttribute", 0},
      {&lib->preferenceDestroy, "cublasLtMatmulPreferenceDestroy", 0},
      {&lib->heuristic, "cublasLtMatmulAlgoGetHeuristic", 0},
      {&lib->matmul, "cublasLtMatmul", 0},
  };
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    void *found = dlsym(library, calls[i].name);
    if (!found && !calls[i].optional) {
      *why = dlerror();
      free(lib->path);
      free(lib);
      return NULL;
    }
    memcpy(calls[i].into, &found, sizeof found);
  }
  Dl_info info;
  if (dladdr((void *)lib->matmul, &info) && info.dli_fname) {
    free(lib->path);
    lib->path = strdup(info.dli_fname);
  }
  return lib;
}

size_t spc_lt_version(const spc_lt *lib) { return lib->version(); }
const char *spc_lt_name(const spc_lt *lib, int status) { return lib->name ? lib->name(status) : NULL; }
const char *spc_lt_path(const spc_lt *lib) { return lib->path; }

int spc_lt_create(const spc_lt *lib, void **handle, const char **call) {
  *call = "cublasLtCreate";
  return lib->create(handle);
}

int spc_lt_close(const spc_lt *lib, void *handle, const char **call) {
  *call = "cublasLtDestroy";
  return lib->close(handle);
}

// TRY makes a call, and leaves with its status where it fails.
#define TRY(name, made)            \
  do {                             \
    *call = name;                  \
    if ((status = (made)) != ltSuccess) \
      goto end;                    \
  } while (0)

int spc_lt_make(const spc_lt *lib, void *handle, const spc_lt_product *p, spc_lt_plan *plan, const char **call) {
  int status;
  void *preference = NULL;
  memset(plan, 0, sizeof *plan);
  TRY("cublasLtMatmulDescCreate", lib->operationCreate(&plan->operation, ltSumF32, ltF32));
  const char *set = "cublasLtMatmulDescSetAttribute";
  int32_t trans[2] = {p->transposed[0] ? ltTransposed : ltAsIs, p->transposed[1] ? ltTransposed : ltAsIs};
  TRY(set, lib->operationSet(plan->operation, ltTransA, &trans[0], sizeof trans[0]));
  TRY(set, lib->operationSet(plan->operation, ltTransB, &trans[1], sizeof trans[1]));
  uint32_t epilogue = p->epilogue;
  TRY(set, lib->operationSet(plan->operation, ltEpilogue, &epilogue, sizeof epilogue));
  if (p->bias)
    TRY(set, lib->operationSet(plan->operation, ltBiasPointer, &p->bias, sizeof p->bias));
  // The matrices as they lie.
  uint64_t size[3][2] = {{p->rows, p->depth}, {p->depth, p->cols}, {p->rows, p->cols}};
  for (int i = 0; i < 3; i++) {
    int flip = i < 2 && p->transposed[i];
    TRY("cublasLtMatrixLayoutCreate",
        lib->layoutCreate(&plan->layout[i], i < 2 ? p->type : p->output, size[i][flip], size[i][1 - flip], p->distance[i]));
    if (p->batch == 1)
      continue;
    int32_t batch = p->batch;
    TRY("cublasLtMatrixLayoutSetAttribute", lib->layoutSet(plan->layout[i], ltBatchCount, &batch, sizeof batch));
    TRY("cublasLtMatrixLayoutSetAttribute", lib->layoutSet(plan->layout[i], ltBatchStride, &p->stride[i], sizeof p->stride[i]));
  }
  TRY("cublasLtMatmulPreferenceCreate", lib->preferenceCreate(&preference));
  TRY("cublasLtMatmulPreferenceSetAttribute", lib->preferenceSet(preference, ltWorkspace, &p->workspace, sizeof p->workspace));
  int count = 0;
  TRY("cublasLtMatmulAlgoGetHeuristic", lib->heuristic(handle, plan->operation, plan->layout[0], plan->layout[1], plan->layout[2], plan->layout[2],
                                                       preference, 1, &plan->found, &count));
  status = count > 0 ? plan->found.state : ltNotSupported;
end:
  if (preference) {
    int destroyed = lib->preferenceDestroy(preference);
    if (status == ltSuccess && destroyed != ltSuccess) {
      *call = "cublasLtMatmulPreferenceDestroy";
      status = destroyed;
    }
  }
  if (status != ltSuccess) {
    const char *other;
    spc_lt_destroy(lib, plan, &other);
  }
  return status;
}

int spc_lt_destroy(const spc_lt *lib, spc_lt_plan *plan, const char **call) {
  int status = ltSuccess;
  for (int i = 0; i < 3; i++)
    if (plan->layout[i]) {
      int destroyed = lib->layoutDestroy(plan->layout[i]);
      if (destroyed != ltSuccess) {
        *call = "cublasLtMatrixLayoutDestroy";
        status = destroyed;
      }
    }
  if (plan->operation) {
    int destroyed = lib->operationDestroy(plan->operation);
    if (destroyed != ltSuccess) {
      *call = "cublasLtMatmulDescDestroy";
      status = destroyed;
    }
  }
  memset(plan, 0, sizeof *plan);
  return status;
}

int spc_lt_multiply(const spc_lt *lib, void *handle, const spc_lt_plan *plan, float alpha, float beta, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                    uint64_t workspace, void *stream, const char **call) {
  *call = "cublasLtMatmul";
  return lib->matmul(handle, plan->operation, &alpha, (void *)a, plan->layout[0], (void *)b, plan->layout[1], &beta, (void *)c, plan->layout[2], (void *)d,
                     plan->layout[2], plan->found.algo, (void *)workspace, plan->found.workspace, stream);
}
