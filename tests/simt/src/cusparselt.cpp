// cusparselt is a libcusparseLt for the emulated driver of libcuda.cpp: the calls that the back
// end makes, computed in float64 when the stream comes to them. It takes nothing that the real
// library would refuse, and its compressed weights are those of the plan's sizes and order alone.
// Of the environment it takes SPC_EMULATED_CUSPARSELT: none, where it has no algorithm; fault,
// where cusparseLtMatmul fails; old, where its version is.
#include "emulated.h"

#include <cmath>

using namespace emulated;

namespace {

// Numbers of cusparse.h and cusparseLt.h.
enum Status { Success = 0, NotInitialised = 1, InvalidValue = 3, ExecutionFailed = 6, NotSupported = 10 };
enum { OpN = 0, OpT = 1, ByColumns = 1, ByRows = 2, Compute32F = 2, Half = 0 };
enum { Batches = 0, BatchStride = 1 };    // attributes of matrices
enum { Relu = 0, BiasPointer = 8 };       // of operations
enum { Major = 0, Minor = 1, Patch = 2 }; // properties

// What lies in an opaque structure begins with what it is.
enum Kind : uint64_t { AHandle = 0x5350434801, AMatrix, AnOperation, ASelection, APlan };

struct Handle {
  Kind kind;
};

struct Matrix {
  Kind kind;
  int64_t rows, cols, ld;
  int type, order, batch;
  int64_t stride;
  bool sparse;
  // at is the place of an element.
  int64_t at(int64_t r, int64_t c) const { return order == ByRows ? r * ld + c : c * ld + r; }
  size_t bytes() const { return (at(rows - 1, cols - 1) + 1 + (batch - 1) * stride) * sizeOf(type); }
};

struct Operation {
  Kind kind;
  int trans[2];
  Matrix a, b, d;
  int relu;
  uint64_t bias;
  int64_t rows() const { return trans[0] == OpT ? a.cols : a.rows; }
  int64_t depth() const { return trans[0] == OpT ? a.rows : a.cols; }
  // stamp begins a compressed weight, which other plans do not take.
  uint64_t stamp() const { return AMatrix ^ uint64_t(rows()) << 40 ^ uint64_t(depth()) << 20 ^ a.order << 4 ^ trans[0]; }
};

struct Selection {
  Kind kind;
  Operation operation;
};

struct Plan {
  Kind kind;
  Operation operation;
};

// as is what lies in a structure, null where that is something else.
template <class T> T *as(const void *p, Kind kind) {
  T *t = static_cast<T *>(const_cast<void *>(p));
  return t && reinterpret_cast<uintptr_t>(p) % 16 == 0 && t->kind == kind ? t : nullptr;
}

bool is(const char *value) { return set("SPC_EMULATED_CUSPARSELT", value); }

Status make(const void *handle, void *matrix, int64_t rows, int64_t cols, int64_t ld, uint32_t alignment, int type, int order, bool sparse) {
  if (!as<Handle>(handle, AHandle))
    return NotInitialised;
  if (!matrix || (order != ByRows && order != ByColumns) || (type != R16F && type != R16BF) || alignment != 16)
    return InvalidValue;
  const int64_t step = sparse ? 16 : 8;
  if (rows <= 0 || cols <= 0 || rows % step || cols % step || ld % 8 || ld < (order == ByRows ? cols : rows))
    return InvalidValue;
  *static_cast<Matrix *>(matrix) = Matrix{AMatrix, rows, cols, ld, type, order, 1, (order == ByRows ? rows : cols) * ld, sparse};
  return Success;
}

// A compressed weight is a header, 2 elements for each 4 of a row, and their places among these.
const size_t header = 16;
size_t compressedSize(const Operation &o) { return header + o.rows() * o.depth() / 2 * (2 + 1); }

} // namespace

extern "C" {

const char *cusparseLtGetErrorName(int status) {
  switch (status) {
  case Success: return "CUSPARSE_STATUS_SUCCESS";
  case NotInitialised: return "CUSPARSE_STATUS_NOT_INITIALIZED";
  case InvalidValue: return "CUSPARSE_STATUS_INVALID_VALUE";
  case ExecutionFailed: return "CUSPARSE_STATUS_EXECUTION_FAILED";
  case NotSupported: return "CUSPARSE_STATUS_NOT_SUPPORTED";
  }
  return "unknown";
}

int cusparseLtGetProperty(int which, int *value) {
  if (which < Major || which > Patch || !value)
    return InvalidValue;
  *value = which == Major ? 0 : which == Minor ? (is("old") ? 4 : 8) : is("old") ? 0 : 1;
  return Success;
}

int cusparseLtInit(void *handle) {
  if (!handle)
    return InvalidValue;
  *static_cast<Handle *>(handle) = Handle{AHandle};
  return Success;
}

int cusparseLtDenseDescriptorInit(const void *handle, void *matrix, int64_t rows, int64_t cols, int64_t ld, uint32_t alignment, int type, int order) {
  return make(handle, matrix, rows, cols, ld, alignment, type, order, false);
}

int cusparseLtStructuredDescriptorInit(const void *handle, void *matrix, int64_t rows, int64_t cols, int64_t ld, uint32_t alignment, int type, int order,
                                       int sparsity) {
  return sparsity == Half ? make(handle, matrix, rows, cols, ld, alignment, type, order, true) : InvalidValue;
}

int cusparseLtMatDescSetAttribute(const void *handle, void *matrix, int attribute, const void *value, size_t bytes) {
  Matrix *m = as<Matrix>(matrix, AMatrix);
  if (!as<Handle>(handle, AHandle) || !m)
    return InvalidValue;
  switch (attribute) {
  case Batches: return copy(m->batch, value, bytes) && m->batch > 0 ? Success : InvalidValue;
  case BatchStride:
    return copy(m->stride, value, bytes) && m->stride % 8 == 0 && (m->stride == 0 || m->stride >= (m->order == ByRows ? m->rows : m->cols) * m->ld)
               ? Success
               : InvalidValue;
  }
  return InvalidValue;
}

int cusparseLtMatDescriptorDestroy(const void *matrix) {
  Matrix *m = as<Matrix>(matrix, AMatrix);
  if (!m)
    return InvalidValue;
  m->kind = AHandle;
  return Success;
}

int cusparseLtMatmulDescriptorInit(const void *handle, void *operation, int opA, int opB, const void *a, const void *b, const void *c, const void *d,
                                   int compute) {
  Matrix *ma = as<Matrix>(a, AMatrix), *mb = as<Matrix>(b, AMatrix), *mc = as<Matrix>(c, AMatrix), *md = as<Matrix>(d, AMatrix);
  if (!as<Handle>(handle, AHandle) || !operation || !ma || !mb || !mc || !md || (opA != OpN && opA != OpT) || (opB != OpN && opB != OpT))
    return InvalidValue;
  Operation o{AnOperation, {opA, opB}, *ma, *mb, *md, 0, 0};
  int64_t depth = opB == OpT ? mb->cols : mb->rows, cols = opB == OpT ? mb->rows : mb->cols;
  if (!ma->sparse || mb->sparse || md->sparse || o.rows() != md->rows || o.depth() != depth || cols != md->cols || ma->batch != md->batch ||
      mb->batch != md->batch)
    return InvalidValue;
  if (compute != Compute32F || ma->type != mb->type || ma->type != md->type || memcmp(mc, md, sizeof *mc) != 0 ||
      (ma->batch > 1 && ma->stride != 0)) // nobody asks for several weights
    return NotSupported;
  *static_cast<Operation *>(operation) = o;
  return Success;
}

int cusparseLtMatmulDescSetAttribute(const void *handle, void *operation, int attribute, const void *value, size_t bytes) {
  Operation *o = as<Operation>(operation, AnOperation);
  if (!as<Handle>(handle, AHandle) || !o)
    return InvalidValue;
  switch (attribute) {
  case Relu: return copy(o->relu, value, bytes) ? Success : InvalidValue;
  case BiasPointer: return copy(o->bias, value, bytes) && o->bias % 16 == 0 ? Success : InvalidValue;
  }
  return InvalidValue;
}

int cusparseLtMatmulAlgSelectionInit(const void *handle, void *selection, const void *operation, int algorithm) {
  Operation *o = as<Operation>(operation, AnOperation);
  if (!as<Handle>(handle, AHandle) || !selection || !o || algorithm != 0)
    return InvalidValue;
  if (is("none"))
    return NotSupported;
  *static_cast<Selection *>(selection) = Selection{ASelection, *o};
  return Success;
}

int cusparseLtMatmulPlanInit(const void *handle, void *plan, const void *operation, const void *selection) {
  Operation *o = as<Operation>(operation, AnOperation);
  Selection *s = as<Selection>(selection, ASelection);
  if (!as<Handle>(handle, AHandle) || !plan || !o || !s)
    return InvalidValue;
  *static_cast<Plan *>(plan) = Plan{APlan, *o};
  return Success;
}

int cusparseLtMatmulPlanDestroy(const void *plan) {
  Plan *p = as<Plan>(plan, APlan);
  if (!p)
    return InvalidValue;
  p->kind = AHandle;
  return Success;
}

int cusparseLtMatmulGetWorkspace(const void *handle, const void *plan, size_t *bytes) {
  if (!as<Handle>(handle, AHandle) || !as<Plan>(plan, APlan) || !bytes)
    return InvalidValue;
  *bytes = 512;
  return Success;
}

int cusparseLtSpMMACompressedSize(const void *handle, const void *plan, size_t *bytes, size_t *scratch) {
  Plan *p = as<Plan>(plan, APlan);
  if (!as<Handle>(handle, AHandle) || !p || !bytes || !scratch)
    return InvalidValue;
  *bytes = compressedSize(p->operation);
  *scratch = 256;
  return Success;
}

int cusparseLtSpMMACompress(const void *handle, const void *plan, Address dense, Address to, Address scratch, void *stream) {
  Plan *p = as<Plan>(plan, APlan);
  if (!as<Handle>(handle, AHandle) || !p || dense % 16 || to % 16)
    return InvalidValue;
  Operation o = p->operation;
  if (!holds(dense, o.a.bytes()) || !holds(to, compressedSize(o)) || !holds(scratch, 256))
    return ExecutionFailed;
  auto work = [=] {
    memset(reinterpret_cast<void *>(scratch), 0xff, 256);
    uint64_t stamp = o.stamp();
    memcpy(reinterpret_cast<void *>(to), &stamp, sizeof stamp);
    Address values = to + header, places = values + o.rows() * o.depth() / 2 * 2;
    for (int64_t r = 0; r < o.rows(); r++)
      for (int64_t k = 0; k < o.depth(); k += 4) {
        int n = 0;
        for (int i = 0; i < 4; i++) {
          double v = load(o.a.type, dense, o.trans[0] == OpT ? o.a.at(k + i, r) : o.a.at(r, k + i));
          if (v == 0)
            continue;
          if (n == 2) {
            fprintf(stderr, "cusparselt: row %ld has more than 2 elements of 4\n", long(r));
            return false;
          }
          int64_t at = (r * o.depth() + k) / 2 + n++;
          store(o.a.type, values, at, v);
          reinterpret_cast<uint8_t *>(places)[at] = i;
        }
        for (; n < 2; n++) {
          int64_t at = (r * o.depth() + k) / 2 + n;
          store(o.a.type, values, at, 0);
          reinterpret_cast<uint8_t *>(places)[at] = n;
        }
      }
    return true;
  };
  return enqueue(stream, work) ? Success : ExecutionFailed;
}

int cusparseLtMatmul(const void *handle, const void *plan, const float *alpha, Address A, Address B, const float *beta, Address C, Address D,
                     Address workspace, void **streams, int32_t count) {
  Plan *p = as<Plan>(plan, APlan);
  if (!as<Handle>(handle, AHandle) || !p || !alpha || !beta || !streams || count != 1)
    return InvalidValue;
  Operation o = p->operation;
  for (Address at : {A, B, C, D})
    if (!at || at % 16)
      return InvalidValue;
  if (is("fault"))
    return ExecutionFailed;
  if (!holds(A, compressedSize(o)) || !holds(B, o.b.bytes()) || !holds(C, o.d.bytes()) || !holds(D, o.d.bytes()) || !holds(workspace, 512) ||
      (o.bias && !holds(o.bias, o.d.rows * sizeOf(o.d.type)))) {
    fprintf(stderr, "cusparselt: an operand is not in memory of the device\n");
    return ExecutionFailed;
  }
  double scale[] = {*alpha, *beta};
  auto work = [=] {
    memset(reinterpret_cast<void *>(workspace), 0xff, 512);
    uint64_t stamp;
    memcpy(&stamp, reinterpret_cast<void *>(A), sizeof stamp);
    if (stamp != o.stamp()) {
      fprintf(stderr, "cusparselt: the weight was not compressed for this plan\n");
      return false;
    }
    Address values = A + header, places = values + o.rows() * o.depth() / 2 * 2;
    for (int64_t batch = 0; batch < o.d.batch; batch++)
      for (int64_t m = 0; m < o.d.rows; m++)
        for (int64_t n = 0; n < o.d.cols; n++) {
          double sum = 0;
          for (int64_t i = 0; i < o.depth() / 2; i++) {
            int64_t at = m * o.depth() / 2 + i, k = i / 2 * 4 + reinterpret_cast<uint8_t *>(places)[at];
            sum += load(o.a.type, values, at) * load(o.b.type, B, (o.trans[1] == OpT ? o.b.at(n, k) : o.b.at(k, n)) + batch * o.b.stride);
          }
          int64_t at = o.d.at(m, n) + batch * o.d.stride;
          sum *= scale[0];
          if (scale[1] != 0)
            sum += scale[1] * load(o.d.type, C, at);
          if (o.bias)
            sum += load(o.d.type, o.bias, m);
          if (o.relu)
            sum = sum < 0 ? 0 : sum;
          store(o.d.type, D, at, sum);
        }
    return true;
  };
  return enqueue(streams[0], work) ? Success : ExecutionFailed;
}

} // extern "C"
