//go:build cuda && linux && amd64

#define _GNU_SOURCE // for dladdr

#include "cusparselt.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

struct spc_sp {
  char *path;
  const char *(*name)(int status); // null in old versions
  int (*property)(int which, int *value);
  int (*init)(void *handle);
  int (*close)(const void *handle);
  int (*dense)(const void *handle, void *matrix, int64_t rows, int64_t cols, int64_t distance, uint32_t alignment, int type, int order);
  int (*structured)(const void *handle, void *matrix, int64_t rows, int64_t cols, int64_t distance, uint32_t alignment, int type, int order, int sparsity);
  int (*matrixSet)(const void *handle, void *matrix, int attribute, const void *value, size_t bytes);
  int (*matrixDestroy)(const void *matrix);
  int (*operation)(const void *handle, void *operation, int opA, int opB, const void *a, const void *b, const void *c, const void *d, int compute);
  int (*operationSet)(const void *handle, void *operation, int attribute, const void *value, size_t bytes);
  int (*select)(const void *handle, void *selection, const void *operation, int algorithm);
  int (*selectionDestroy)(const void *selection); // null in old versions
  int (*plan)(const void *handle, void *plan, const void *operation, const void *selection);
  int (*planDestroy)(const void *plan);
  int (*workspace)(const void *handle, const void *plan, size_t *bytes);
  int (*compressedSize)(const void *handle, const void *plan, size_t *bytes, size_t *scratch);
  int (*compress)(const void *handle, const void *plan, const void *dense, void *to, void *scratch, void *stream);
  int (*matmul)(const void *handle, const void *plan, const void *alpha, const void *a, const void *b, const void *beta, const void *c, void *d,
                void *workspace, void **streams, int32_t count);
};

spc_sp *spc_sp_open(const char *path, const char **why) {
  *why = NULL;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    *why = dlerror();
    return NULL;
  }
  spc_sp *lib = calloc(1, sizeof *lib);
  if (!lib)
    abort();
  struct {
    void *into;
    const char *name;
    int optional;
  } calls[] = {
      {&lib->name, "cusparseLtGetErrorName", 1},
      {&lib->property, "cusparseLtGetProperty", 0},
      {&lib->init, "cusparseLtInit", 0},
      {&lib->close, "cusparseLtDestroy", 0},
      {&lib->dense, "cusparseLtDenseDescriptorInit", 0},
      {&lib->structured, "cusparseLtStructuredDescriptorInit", 0},
      {&lib->matrixSet, "cusparseLtMatDescSetAttribute", 0},
      {&lib->matrixDestroy, "cusparseLtMatDescriptorDestroy", 0},
      {&lib->operation, "cusparseLtMatmulDescriptorInit", 0},
      {&lib->operationSet, "cusparseLtMatmulDescSetAttribute", 0},
      {&lib->select, "cusparseLtMatmulAlgSelectionInit", 0},
      {&lib->selectionDestroy, "cusparseLtMatmulAlgSelectionDestroy", 1},
      {&lib->plan, "cusparseLtMatmulPlanInit", 0},
      {&lib->planDestroy, "cusparseLtMatmulPlanDestroy", 0},
      {&lib->workspace, "cusparseLtMatmulGetWorkspace", 0},
      {&lib->compressedSize, "cusparseLtSpMMACompressedSize", 0},
      {&lib->compress, "cusparseLtSpMMACompress", 0},
      {&lib->matmul, "cusparseLtMatmul", 0},
  };
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    void *found = dlsym(library, calls[i].name);
    if (!found && !calls[i].optional) {
      *why = dlerror();
      free(lib);
      return NULL;
    }
    memcpy(calls[i].into, &found, sizeof found);
  }
  Dl_info info;
  lib->path = strdup(dladdr((void *)lib->matmul, &info) && info.dli_fname ? info.dli_fname : path);
  return lib;
}

int spc_sp_version(const spc_sp *lib) {
  int v[3] = {0, 0, 0}; // MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL
  for (int i = 0; i < 3; i++)
    if (lib->property(i, &v[i]) != spSuccess)
      return 0;
  return v[0] * 10000 + v[1] * 100 + v[2];
}

const char *spc_sp_name(const spc_sp *lib, int status) { return lib->name ? lib->name(status) : NULL; }
const char *spc_sp_path(const spc_sp *lib) { return lib->path; }

// object is room for one of the library's structures, of which the largest in any version has
// 11024 bytes.
static void *object(void) {
  void *p = aligned_alloc(64, 16 << 10);
  if (!p)
    abort();
  memset(p, 0, 16 << 10);
  return p;
}

int spc_sp_create(const spc_sp *lib, void **handle, const char **call) {
  *call = "cusparseLtInit";
  *handle = object();
  int status = lib->init(*handle);
  if (status != spSuccess) {
    free(*handle);
    *handle = NULL;
  }
  return status;
}

int spc_sp_close(const spc_sp *lib, void *handle, const char **call) {
  *call = "cusparseLtDestroy";
  return lib->close(handle);
}

// TRY makes a call, and leaves with its status where it fails.
#define TRY(name, made_)                 \
  do {                                   \
    *call = name;                        \
    if ((status = (made_)) != spSuccess) \
      goto failed;                       \
  } while (0)

int spc_sp_make(const spc_sp *lib, void *handle, const spc_sp_product *p, spc_sp_plan *plan, const char **call) {
  enum { alignment = 16 };
  int status;
  memset(plan, 0, sizeof *plan);
  plan->operation = object();
  plan->selection = object();
  plan->plan = object();
  for (int i = 0; i < 3; i++)
    plan->matrix[i] = object();
  // A matrix by rows is the transposed one by columns.
  int columns = p->order == spByColumns;
  TRY("cusparseLtStructuredDescriptorInit", lib->structured(handle, plan->matrix[0], columns ? p->depth : p->rows, columns ? p->rows : p->depth,
                                                            p->distance[0], alignment, p->type, p->order, spHalf));
  plan->made[0] = 1;
  for (int i = 1; i < 3; i++) {
    TRY("cusparseLtDenseDescriptorInit",
        lib->dense(handle, plan->matrix[i], i == 1 ? p->depth : p->rows, p->cols, p->distance[i], alignment, p->type, p->order));
    plan->made[i] = 1;
  }
  if (p->batch > 1)
    for (int i = 0; i < 3; i++) {
      int batch = p->batch;
      TRY("cusparseLtMatDescSetAttribute", lib->matrixSet(handle, plan->matrix[i], spBatches, &batch, sizeof batch));
      TRY("cusparseLtMatDescSetAttribute", lib->matrixSet(handle, plan->matrix[i], spBatchStride, &p->stride[i], sizeof p->stride[i]));
    }
  TRY("cusparseLtMatmulDescriptorInit", lib->operation(handle, plan->operation, columns ? spTransposed : spAsIs, spAsIs, plan->matrix[0], plan->matrix[1],
                                                       plan->matrix[2], plan->matrix[2], spSumF32));
  if (p->relu) {
    int on = 1;
    TRY("cusparseLtMatmulDescSetAttribute", lib->operationSet(handle, plan->operation, spRelu, &on, sizeof on));
  }
  if (p->bias)
    TRY("cusparseLtMatmulDescSetAttribute", lib->operationSet(handle, plan->operation, spBiasPointer, &p->bias, sizeof p->bias));
  TRY("cusparseLtMatmulAlgSelectionInit", lib->select(handle, plan->selection, plan->operation, spAnyAlgorithm));
  plan->selected = 1;
  TRY("cusparseLtMatmulPlanInit", lib->plan(handle, plan->plan, plan->operation, plan->selection));
  plan->planned = 1;
  TRY("cusparseLtMatmulGetWorkspace", lib->workspace(handle, plan->plan, &plan->workspace));
  TRY("cusparseLtSpMMACompressedSize", lib->compressedSize(handle, plan->plan, &plan->compressed, &plan->scratch));
  return spSuccess;
failed:;
  const char *other;
  spc_sp_destroy(lib, plan, &other);
  spc_sp_forget(plan);
  return status;
}

int spc_sp_destroy(const spc_sp *lib, spc_sp_plan *plan, const char **call) {
  int status = spSuccess;
#define DESTROY(made, name, destroyed)                      \
  do {                                                      \
    int failed = (made) ? (destroyed) : spSuccess;          \
    (made) = 0;                                             \
    if (failed != spSuccess && status == spSuccess) {       \
      *call = name;                                         \
      status = failed;                                      \
    }                                                       \
  } while (0)
  DESTROY(plan->planned, "cusparseLtMatmulPlanDestroy", lib->planDestroy(plan->plan));
  DESTROY(plan->selected, "cusparseLtMatmulAlgSelectionDestroy", lib->selectionDestroy ? lib->selectionDestroy(plan->selection) : spSuccess);
  for (int i = 0; i < 3; i++)
    DESTROY(plan->made[i], "cusparseLtMatDescriptorDestroy", lib->matrixDestroy(plan->matrix[i]));
  return status;
}

void spc_sp_forget(spc_sp_plan *plan) {
  for (int i = 0; i < 3; i++)
    free(plan->matrix[i]);
  free(plan->operation);
  free(plan->selection);
  free(plan->plan);
  memset(plan, 0, sizeof *plan);
}

int spc_sp_compress(const spc_sp *lib, void *handle, const spc_sp_plan *plan, uint64_t w, uint64_t to, uint64_t scratch, void *stream, const char **call) {
  *call = "cusparseLtSpMMACompress";
  return lib->compress(handle, plan->plan, (void *)w, (void *)to, (void *)scratch, stream);
}

int spc_sp_multiply(const spc_sp *lib, void *handle, const spc_sp_plan *plan, float alpha, float beta, uint64_t w, uint64_t b, uint64_t c, uint64_t d,
                    uint64_t workspace, void *stream, const char **call) {
  *call = "cusparseLtMatmul";
  return lib->matmul(handle, plan->plan, &alpha, (void *)w, (void *)b, &beta, (void *)c, (void *)d, (void *)workspace, &stream, 1);
}
