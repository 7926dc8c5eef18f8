// cusparselt is a libcusparseLt for the emulated driver of libcuda.cpp: the calls that the back
// end makes, computed in float64 when the stream comes to them. It takes nothing that the real
// library would refuse, and its compressed weights are those of the plan's sizes and order alone.
// Its calls, and its kernels cusparselt_compress and cusparselt_product, fail as SPC_EMULATED_FAULT
// says; SPC_EMULATED_CUSPARSELT is its version (801).
#include "emulated.h"

#include <cmath>

using namespace emulated;

namespace {

// Numbers of cusparse.h and cusparseLt.h.
enum Status { Success = 0, NotInitialised = 1, InvalidValue = 3, ExecutionFailed = 6, InternalError = 7, NotSupported = 10 };
enum { OpN = 0, OpT = 1, ByColumns = 1, ByRows = 2, Compute32F = 2, Half = 0 };
enum { Batches = 0, BatchStride = 1 };    // attributes of matrices
enum { Relu = 0, BiasPointer = 8 };       // of operations
enum { Major = 0, Minor = 1, Patch = 2 }; // properties

// What lies in an opaque structure begins with what it is.
enum Kind : uint64_t { Nothing = 0, AHandle = 0x5350434801, AMatrix, AnOperation, ASelection, APlan };

struct Handle {
  Kind kind;
  int users; // objects that were made with it and not destroyed
};

struct Matrix {
  Kind kind;
  Handle *handle;
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
  Handle *handle;
  int users; // plans
  Operation operation;
};

struct Plan {
  Kind kind;
  Handle *handle;
  Selection *selection;
  uint64_t number; // one of its own
  Operation operation;
};

// as is what lies in a structure, null where that is something else.
template <class T> T *as(const void *p, Kind kind) {
  T *t = static_cast<T *>(const_cast<void *>(p));
  return t && reinterpret_cast<uintptr_t>(p) % 16 == 0 && t->kind == kind ? t : nullptr;
}

// objects guards the counts of users.
std::mutex objects;

// with is a handle for a call, of the current context.
Handle *with(const void *handle, const char *call) {
  own(handle, call);
  return as<Handle>(handle, AHandle);
}

// keep gives the current context an object that was made with a handle.
Status keep(const void *object, Handle *handle) {
  if (!make(object))
    return InternalError;
  std::lock_guard<std::mutex> guard(objects);
  handle->users++;
  return Success;
}

// end destroys an object.
template <class T> Status end(T *object, const char *call) {
  if (!object)
    return InvalidValue;
  own(object, call);
  if (!drop(object))
    return InternalError;
  std::lock_guard<std::mutex> guard(objects);
  object->handle->users--;
  object->kind = Nothing;
  return Success;
}

Status matrixOf(const void *handle, void *matrix, int64_t rows, int64_t cols, int64_t ld, uint32_t alignment, int type, int order, bool sparse) {
  Handle *h = with(handle, "a matrix");
  if (!h)
    return NotInitialised;
  if (!matrix || (order != ByRows && order != ByColumns) || (type != R16F && type != R16BF) || alignment != 16)
    return InvalidValue;
  const int64_t step = sparse ? 16 : 8;
  if (rows <= 0 || cols <= 0 || rows % step || cols % step || ld % 8 || ld < (order == ByRows ? cols : rows))
    return InvalidValue;
  *static_cast<Matrix *>(matrix) = Matrix{AMatrix, h, rows, cols, ld, type, order, 1, (order == ByRows ? rows : cols) * ld, sparse};
  return keep(matrix, h);
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
  case InternalError: return "CUSPARSE_STATUS_INTERNAL_ERROR";
  case NotSupported: return "CUSPARSE_STATUS_NOT_SUPPORTED";
  }
  return "unknown";
}

int cusparseLtGetProperty(int which, int *value) {
  if (which < Major || which > Patch || !value)
    return InvalidValue;
  const char *told = getenv("SPC_EMULATED_CUSPARSELT");
  const int version = told ? atoi(told) : 801;
  *value = which == Major ? version / 10000 : which == Minor ? version / 100 % 100 : version % 100;
  return Success;
}

int cusparseLtInit(void *handle) {
  MAY_FAIL();
  if (!handle)
    return InvalidValue;
  *static_cast<Handle *>(handle) = Handle{AHandle, 0};
  return make(handle) ? Success : NotInitialised;
}

int cusparseLtDestroy(const void *handle) {
  MAY_FAIL();
  Handle *h = with(handle, __func__);
  if (!h || h->users > 0)
    return InvalidValue;
  if (!drop(handle))
    return InternalError;
  h->kind = Nothing;
  return Success;
}

int cusparseLtDenseDescriptorInit(const void *handle, void *matrix, int64_t rows, int64_t cols, int64_t ld, uint32_t alignment, int type, int order) {
  MAY_FAIL();
  return matrixOf(handle, matrix, rows, cols, ld, alignment, type, order, false);
}

int cusparseLtStructuredDescriptorInit(const void *handle, void *matrix, int64_t rows, int64_t cols, int64_t ld, uint32_t alignment, int type, int order,
                                       int sparsity) {
  MAY_FAIL();
  return sparsity == Half ? matrixOf(handle, matrix, rows, cols, ld, alignment, type, order, true) : InvalidValue;
}

int cusparseLtMatDescSetAttribute(const void *handle, void *matrix, int attribute, const void *value, size_t bytes) {
  MAY_FAIL();
  Matrix *m = as<Matrix>(matrix, AMatrix);
  if (!with(handle, __func__) || !m)
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
  MAY_FAIL();
  return end(as<Matrix>(matrix, AMatrix), __func__);
}

int cusparseLtMatmulDescriptorInit(const void *handle, void *operation, int opA, int opB, const void *a, const void *b, const void *c, const void *d,
                                   int compute) {
  MAY_FAIL();
  Matrix *ma = as<Matrix>(a, AMatrix), *mb = as<Matrix>(b, AMatrix), *mc = as<Matrix>(c, AMatrix), *md = as<Matrix>(d, AMatrix);
  if (!with(handle, __func__) || !operation || !ma || !mb || !mc || !md || (opA != OpN && opA != OpT) || (opB != OpN && opB != OpT))
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
  MAY_FAIL();
  Operation *o = as<Operation>(operation, AnOperation);
  if (!with(handle, __func__) || !o)
    return InvalidValue;
  switch (attribute) {
  case Relu: return copy(o->relu, value, bytes) ? Success : InvalidValue;
  case BiasPointer: return copy(o->bias, value, bytes) && o->bias % 16 == 0 ? Success : InvalidValue;
  }
  return InvalidValue;
}

int cusparseLtMatmulAlgSelectionInit(const void *handle, void *selection, const void *operation, int algorithm) {
  MAY_FAIL();
  Operation *o = as<Operation>(operation, AnOperation);
  if (!with(handle, __func__) || !selection || !o || algorithm != 0)
    return InvalidValue;
  Handle *h = with(handle, __func__);
  *static_cast<Selection *>(selection) = Selection{ASelection, h, 0, *o};
  return keep(selection, h);
}

int cusparseLtMatmulAlgSelectionDestroy(const void *selection) {
  MAY_FAIL();
  Selection *s = as<Selection>(selection, ASelection);
  return s && s->users > 0 ? InvalidValue : end(s, __func__);
}

int cusparseLtMatmulPlanInit(const void *handle, void *plan, const void *operation, const void *selection) {
  MAY_FAIL();
  Operation *o = as<Operation>(operation, AnOperation);
  Selection *s = as<Selection>(selection, ASelection);
  if (!with(handle, __func__) || !plan || !o || !s)
    return InvalidValue;
  Handle *h = with(handle, __func__);
  static std::atomic<uint64_t> plans;
  *static_cast<Plan *>(plan) = Plan{APlan, h, s, plans++, *o};
  Status kept = keep(plan, h);
  if (kept == Success)
    s->users++;
  return kept;
}

int cusparseLtMatmulPlanDestroy(const void *plan) {
  MAY_FAIL();
  Plan *p = as<Plan>(plan, APlan);
  Status ended = end(p, __func__);
  if (ended == Success)
    p->selection->users--;
  return ended;
}

int cusparseLtMatmulGetWorkspace(const void *handle, const void *plan, size_t *bytes) {
  MAY_FAIL();
  if (!with(handle, __func__) || !as<Plan>(plan, APlan) || !bytes)
    return InvalidValue;
  *bytes = 512;
  return Success;
}

int cusparseLtSpMMACompressedSize(const void *handle, const void *plan, size_t *bytes, size_t *scratch) {
  MAY_FAIL();
  Plan *p = as<Plan>(plan, APlan);
  if (!with(handle, __func__) || !p || !bytes || !scratch)
    return InvalidValue;
  *bytes = compressedSize(p->operation);
  *scratch = 256;
  return Success;
}

int cusparseLtSpMMACompress(const void *handle, const void *plan, Address dense, Address to, Address scratch, void *stream) {
  MAY_FAIL();
  Plan *p = as<Plan>(plan, APlan);
  if (!with(handle, __func__) || !p || dense % 16 || to % 16)
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
  return enqueue(stream, "cusparselt_compress", work) ? Success : ExecutionFailed;
}

int cusparseLtMatmul(const void *handle, const void *plan, const float *alpha, Address A, Address B, const float *beta, Address C, Address D,
                     Address workspace, void **streams, int32_t count) {
  MAY_FAIL();
  Plan *p = as<Plan>(plan, APlan);
  if (!with(handle, __func__) || !p || !alpha || !beta || !streams || count != 1)
    return InvalidValue;
  Operation o = p->operation;
  for (Address at : {A, B, C, D})
    if (!at || at % 16)
      return InvalidValue;
  if (!holds(A, compressedSize(o)) || !holds(B, o.b.bytes()) || !holds(C, o.d.bytes()) || !holds(D, o.d.bytes()) || !holds(workspace, 512) ||
      (o.bias && !holds(o.bias, o.d.rows * sizeOf(o.d.type)))) {
    fprintf(stderr, "cusparselt: an operand is not in memory of the device\n");
    return ExecutionFailed;
  }
  static Loads loads;
  if (!loads.can(streams[0], p->number))
    return ExecutionFailed;
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
  return enqueue(streams[0], "cusparselt_product", work) ? Success : ExecutionFailed;
}

} // extern "C"
