// The part of the C interface of cuSPARSELt, from version 0.6 on, that products of 2:4 weights
// need, with numbers of NVIDIA's enumerations as its documentation orders them.

#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
  spSuccess = 0,       // CUSPARSE_STATUS_SUCCESS
  spInvalid = 3,       // CUSPARSE_STATUS_INVALID_VALUE
  spArchMismatch = 4,  // CUSPARSE_STATUS_ARCH_MISMATCH
  spNotSupported = 10, // CUSPARSE_STATUS_NOT_SUPPORTED

  spF16 = 2,   // CUDA_R_16F
  spBF16 = 14, // CUDA_R_16BF

  spSumF32 = 2, // CUSPARSE_COMPUTE_32F; other numbers before version 0.6

  spAsIs = 0,       // CUSPARSE_OPERATION_NON_TRANSPOSE
  spTransposed = 1, // CUSPARSE_OPERATION_TRANSPOSE

  spByColumns = 1, // CUSPARSE_ORDER_COL
  spByRows = 2,    // CUSPARSE_ORDER_ROW

  spHalf = 0, // CUSPARSELT_SPARSITY_50_PERCENT

  spBatches = 0,     // CUSPARSELT_MAT_NUM_BATCHES
  spBatchStride = 1, // CUSPARSELT_MAT_BATCH_STRIDE

  spRelu = 0,        // CUSPARSELT_MATMUL_ACTIVATION_RELU
  spBiasPointer = 8, // CUSPARSELT_MATMUL_BIAS_POINTER

  spAnyAlgorithm = 0, // CUSPARSELT_MATMUL_ALG_DEFAULT
};

// spc_sp is the library once it is open.
typedef struct spc_sp spc_sp;

// spc_sp_product is D = relu(alpha W B + beta C + bias) of a 2:4 weight that lies by rows; the
// other matrices lie all by rows or all by columns.
typedef struct {
  int type, order;
  int64_t rows, depth, cols;
  int64_t distance[3], stride[3]; // of rows or columns, and of matrices, of W, B and D
  int batch;
  int relu;
  uint64_t bias; // its address
} spc_sp_product;

// spc_sp_plan is a product with its algorithm.
typedef struct {
  void *matrix[3], *operation, *selection, *plan; // memory for them
  int made[3], selected, planned; // what is to be destroyed of these
  size_t workspace, compressed, scratch;
} spc_sp_plan;

// spc_sp_open opens the library in a file, and returns null where it cannot, and why.
spc_sp *spc_sp_open(const char *path, const char **why);
// spc_sp_version is 10000 times its major version, 100 times the minor one, and the patch.
int spc_sp_version(const spc_sp *lib);
// spc_sp_name is the name of a status, or null.
const char *spc_sp_name(const spc_sp *lib, int status);
// spc_sp_path is the file, as the dynamic linker found it.
const char *spc_sp_path(const spc_sp *lib);

// Those below return a status, and the name of the call that it is of.

// spc_sp_create makes a handle, in memory that is free()d after spc_sp_close.
int spc_sp_create(const spc_sp *lib, void **handle, const char **call);
int spc_sp_close(const spc_sp *lib, void *handle, const char **call);
// spc_sp_make makes a plan; it is destroyed and forgotten where the status is not spSuccess.
int spc_sp_make(const spc_sp *lib, void *handle, const spc_sp_product *p, spc_sp_plan *plan, const char **call);
// spc_sp_destroy destroys what the library made, the last thing first.
int spc_sp_destroy(const spc_sp *lib, spc_sp_plan *plan, const char **call);
int spc_sp_compress(const spc_sp *lib, void *handle, const spc_sp_plan *plan, uint64_t w, uint64_t to, uint64_t scratch, void *stream, const char **call);
int spc_sp_multiply(const spc_sp *lib, void *handle, const spc_sp_plan *plan, float alpha, float beta, uint64_t w, uint64_t b, uint64_t c, uint64_t d,
                    uint64_t workspace, void *stream, const char **call);

// spc_sp_forget frees the memory of a plan, and calls nothing of the library.
void spc_sp_forget(spc_sp_plan *plan);
