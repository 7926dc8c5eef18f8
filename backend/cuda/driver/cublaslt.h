// The part of the C interface of cuBLASLt, from version 11 on, that products need: opaque
// handles, and numbers of NVIDIA's enumerations under names of their own, so that neither
// cublasLt.h nor the library is needed to build. tests/gpu compares them with cublasLt.h.

#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
  ltSuccess = 0,       // CUBLAS_STATUS_SUCCESS
  ltArchMismatch = 8,  // CUBLAS_STATUS_ARCH_MISMATCH
  ltNotSupported = 15, // CUBLAS_STATUS_NOT_SUPPORTED

  ltF32 = 0,   // CUDA_R_32F
  ltF16 = 2,   // CUDA_R_16F
  ltBF16 = 14, // CUDA_R_16BF

  ltSumF32 = 68, // CUBLAS_COMPUTE_32F: no TF32

  ltAsIs = 0,       // CUBLAS_OP_N
  ltTransposed = 1, // CUBLAS_OP_T

  ltTransA = 3,      // CUBLASLT_MATMUL_DESC_TRANSA
  ltTransB = 4,      // CUBLASLT_MATMUL_DESC_TRANSB
  ltEpilogue = 7,    // CUBLASLT_MATMUL_DESC_EPILOGUE
  ltBiasPointer = 8, // CUBLASLT_MATMUL_DESC_BIAS_POINTER

  ltBatchCount = 5,  // CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT
  ltBatchStride = 6, // CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET

  ltWorkspace = 1, // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES

  ltNoEpilogue = 1, // CUBLASLT_EPILOGUE_DEFAULT
  ltRelu = 2,       // CUBLASLT_EPILOGUE_RELU
  ltBias = 4,       // CUBLASLT_EPILOGUE_BIAS
  ltGelu = 32,      // CUBLASLT_EPILOGUE_GELU
};

// spc_lt_heuristic is cublasLtMatmulHeuristicResult_t.
typedef struct {
  uint64_t algo[8]; // cublasLtMatmulAlgo_t
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
} spc_lt_heuristic;

// spc_lt is the library once it is open.
typedef struct spc_lt spc_lt;

// spc_lt_product is D = epilogue(alpha op(A) op(B) + beta C), C where D is in memory or as D
// lies, of matrices by columns: A, B and D are each numbers 0, 1 and 2.
typedef struct {
  int type, output; // of A and B, and of C and D
  uint64_t rows, cols, depth;
  int transposed[2];
  int64_t distance[3], stride[3]; // of columns, and of matrices
  int batch;
  int epilogue;
  uint64_t bias; // its address
  uint64_t workspace;
} spc_lt_product;

// spc_lt_plan is a product with its algorithm.
typedef struct {
  void *operation, *layout[3];
  spc_lt_heuristic found;
} spc_lt_plan;

// spc_lt_open opens the library in a file, and returns null where it cannot, and why.
spc_lt *spc_lt_open(const char *path, const char **why);
// spc_lt_version is 10000 times its major version, 100 times the minor one, and the patch.
size_t spc_lt_version(const spc_lt *lib);
// spc_lt_name is the name of a status, or null.
const char *spc_lt_name(const spc_lt *lib, int status);
// spc_lt_path is the file, as the dynamic linker found it.
const char *spc_lt_path(const spc_lt *lib);

// Those below return a status, and the name of the call that it is of.

int spc_lt_create(const spc_lt *lib, void **handle, const char **call);
int spc_lt_close(const spc_lt *lib, void *handle, const char **call);
// spc_lt_make makes a plan; it is destroyed where the status is not ltSuccess.
int spc_lt_make(const spc_lt *lib, void *handle, const spc_lt_product *p, spc_lt_plan *plan, const char **call);
// spc_lt_destroy destroys its descriptors, which are memory of the host: no context is needed.
int spc_lt_destroy(const spc_lt *lib, spc_lt_plan *plan, const char **call);
int spc_lt_multiply(const spc_lt *lib, void *handle, const spc_lt_plan *plan, float alpha, float beta, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                    uint64_t workspace, void *stream, const char **call);
