// cublaslt is a libcublasLt for the emulated driver of libcuda.cpp: the calls that the back end
// makes, computed in float64 when the stream comes to them. It takes nothing that the real
// library would refuse, and writes over the workspace that it was given. Its calls, and its kernel
// cublaslt_product, fail as SPC_EMULATED_FAULT says. Where SPC_EMULATED_CUBLASLT is holds, it holds
// the context of each handle for as long as the process lives, as the runtime of a library may.
#include "emulated.h"

#include <cmath>
#include <set>

using namespace emulated;

namespace {

// Numbers of cublas_api.h and cublasLt.h.
enum Status { Success = 0, NotInitialised = 1, AllocFailed = 3, InvalidValue = 7, ExecutionFailed = 13, InternalError = 14, NotSupported = 15 };
enum { Compute32F = 68, OpN = 0, OpT = 1 };
enum { TransA = 3, TransB = 4, EpilogueKind = 7, BiasPointer = 8 }; // attributes of operations
enum { BatchCount = 5, BatchStride = 6 };                           // of layouts
enum { MaxWorkspace = 1 };                                          // of preferences
enum { Default = 1, Relu = 2, Bias = 4, Gelu = 32 };                // epilogues
const uint64_t known = 0x5350434c54616c67; // in algorithms that the heuristic made

struct Operation {
  int trans[2] = {OpN, OpN};
  uint32_t epilogue = Default;
  uint64_t bias = 0;
};

struct Layout {
  int type;
  uint64_t rows, cols;
  int64_t ld;
  int32_t batch = 1;
  int64_t stride = 0;
  bool operator==(const Layout &o) const {
    return type == o.type && rows == o.rows && cols == o.cols && ld == o.ld && batch == o.batch && stride == o.stride;
  }
  size_t size() const { return sizeOf(type); }
  // bytes are from the first element to the last.
  size_t bytes() const { return (int64_t(cols - 1) * ld + rows + (batch - 1) * stride) * size(); }
};

struct Preference {
  uint64_t workspace = 0;
};

// Algorithm is what lies in a cublasLtMatmulAlgo_t.
struct Algorithm {
  uint64_t magic, workspace, hash;
};

struct Heuristic {
  uint64_t algo[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

// Objects are descriptors, in memory of the host. Live are those that were created and not destroyed;
// any other pointer is refused.
template <class T> struct Objects {
  std::mutex lock;
  std::set<void *> live;
  Status create(void **out, T *made) {
    if (!out)
      return InvalidValue;
    std::lock_guard<std::mutex> guard(lock);
    live.insert(made);
    *out = made;
    describe(1);
    return Success;
  }
  T *find(void *p) {
    std::lock_guard<std::mutex> guard(lock);
    return live.count(p) ? static_cast<T *>(p) : nullptr;
  }
  Status destroy(void *p) {
    std::lock_guard<std::mutex> guard(lock);
    if (live.erase(p) == 0)
      return InvalidValue;
    delete static_cast<T *>(p);
    describe(-1);
    return Success;
  }
};

Objects<Operation> operations;
Objects<Layout> layouts;
Objects<Preference> preferences;

struct Handle {
  Loads loads;
};

Status result(bool ok) { return ok ? Success : InvalidValue; }

// Problem is a product with all that describes it.
struct Problem {
  Operation operation;
  Layout a, b, c, d;

  uint64_t depth() const { return operation.trans[0] == OpT ? a.rows : a.cols; }

  // check is what the library thinks of the problem.
  Status check() const {
    for (const Layout *l : {&a, &b, &c, &d})
      if (l->rows == 0 || l->cols == 0 || l->ld < int64_t(l->rows) || l->batch < 1 || l->batch != a.batch || l->stride < 0)
        return InvalidValue;
    uint64_t m = operation.trans[0] == OpT ? a.cols : a.rows, n = operation.trans[1] == OpT ? b.rows : b.cols;
    if (m != d.rows || n != d.cols || depth() != (operation.trans[1] == OpT ? b.cols : b.rows))
      return InvalidValue;
    if (d.batch > 1 && d.stride < int64_t(d.cols - 1) * d.ld + int64_t(d.rows)) // matrices of D would overlap
      return InvalidValue;
    if (a.type != b.type || !(c == d) || (d.type != a.type && d.type != R32F))
      return NotSupported;
    bool bias = operation.epilogue != Default && operation.epilogue & Bias;
    if (bias != (operation.bias != 0) || operation.bias % 16 != 0)
      return InvalidValue;
    return Success;
  }

  uint64_t hash() const {
    uint64_t h = 14695981039346656037u;
    auto mix = [&](uint64_t v) { h = (h ^ v) * 1099511628211u; };
    for (const Layout *l : {&a, &b, &c, &d})
      for (uint64_t v : {uint64_t(l->type), l->rows, l->cols, uint64_t(l->ld), uint64_t(l->batch), uint64_t(l->stride)})
        mix(v);
    for (uint64_t v : {uint64_t(operation.trans[0]), uint64_t(operation.trans[1]), uint64_t(operation.epilogue)})
      mix(v);
    return h;
  }

  void run(double alpha, double beta, Address A, Address B, Address C, Address D) const {
    for (int batch = 0; batch < d.batch; batch++)
      for (uint64_t n = 0; n < d.cols; n++)
        for (uint64_t m = 0; m < d.rows; m++) {
          double sum = 0;
          for (uint64_t k = 0; k < depth(); k++) {
            int64_t i = operation.trans[0] == OpT ? m * a.ld + k : k * a.ld + m, j = operation.trans[1] == OpT ? k * b.ld + n : n * b.ld + k;
            sum += load(a.type, A, i + batch * a.stride) * load(b.type, B, j + batch * b.stride);
          }
          int64_t at = n * d.ld + m + batch * d.stride;
          sum *= alpha;
          if (beta != 0)
            sum += beta * load(c.type, C, at);
          if (operation.epilogue == Default) {
            store(d.type, D, at, sum);
            continue;
          }
          if (operation.epilogue & Bias)
            sum += load(d.type, operation.bias, m);
          if (operation.epilogue & Relu)
            sum = sum < 0 ? 0 : sum;
          if (operation.epilogue & Gelu)
            sum = 0.5 * sum * (1 + std::tanh(0.7978845608028654 * (sum + 0.044715 * sum * sum * sum)));
          store(d.type, D, at, sum);
        }
  }
};

} // namespace

extern "C" {

size_t cublasLtGetVersion() { return 120402; }

const char *cublasLtGetStatusName(int status) {
  switch (status) {
  case Success: return "CUBLAS_STATUS_SUCCESS";
  case NotInitialised: return "CUBLAS_STATUS_NOT_INITIALIZED";
  case AllocFailed: return "CUBLAS_STATUS_ALLOC_FAILED";
  case InvalidValue: return "CUBLAS_STATUS_INVALID_VALUE";
  case ExecutionFailed: return "CUBLAS_STATUS_EXECUTION_FAILED";
  case InternalError: return "CUBLAS_STATUS_INTERNAL_ERROR";
  case NotSupported: return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "unknown";
}

int cublasLtCreate(void **handle) {
  MAY_FAIL();
  Handle *made = new Handle;
  if (!make(made)) {
    delete made;
    return NotInitialised;
  }
  const char *told = getenv("SPC_EMULATED_CUBLASLT");
  if (told && strcmp(told, "holds") == 0)
    driver<void()>("spcEmulatedRetain")();
  *handle = made;
  return Success;
}

int cublasLtDestroy(void *handle) {
  MAY_FAIL();
  own(handle, __func__);
  if (!drop(handle))
    return InternalError;
  delete static_cast<Handle *>(handle);
  return Success;
}

int cublasLtMatmulDescCreate(void **operation, int compute, int scale) {
  MAY_FAIL();
  if (compute != Compute32F || scale != R32F)
    return InvalidValue;
  return operations.create(operation, new Operation);
}

int cublasLtMatmulDescSetAttribute(void *operation, int attribute, const void *value, size_t bytes) {
  MAY_FAIL();
  Operation *o = operations.find(operation);
  if (!o)
    return InvalidValue;
  int32_t trans = 0;
  switch (attribute) {
  case TransA:
  case TransB:
    if (!copy(trans, value, bytes) || (trans != OpN && trans != OpT))
      return InvalidValue;
    o->trans[attribute - TransA] = trans;
    return Success;
  case EpilogueKind:
    if (!copy(o->epilogue, value, bytes))
      return InvalidValue;
    for (int one : {int(Default), int(Relu), int(Bias), Relu | Bias, int(Gelu), Gelu | Bias})
      if (int(o->epilogue) == one)
        return Success;
    return InvalidValue;
  case BiasPointer:
    return result(copy(o->bias, value, bytes));
  }
  return InvalidValue;
}

int cublasLtMatmulDescDestroy(void *operation) {
  MAY_FAIL();
  return operations.destroy(operation);
}

int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  MAY_FAIL();
  if (!isType(type))
    return InvalidValue;
  Layout *l = new Layout;
  l->type = type;
  l->rows = rows;
  l->cols = cols;
  l->ld = ld;
  return layouts.create(layout, l);
}

int cublasLtMatrixLayoutSetAttribute(void *layout, int attribute, const void *value, size_t bytes) {
  MAY_FAIL();
  Layout *l = layouts.find(layout);
  if (!l)
    return InvalidValue;
  switch (attribute) {
  case BatchCount: return result(copy(l->batch, value, bytes));
  case BatchStride: return result(copy(l->stride, value, bytes));
  }
  return InvalidValue;
}

int cublasLtMatrixLayoutDestroy(void *layout) {
  MAY_FAIL();
  return layouts.destroy(layout);
}

int cublasLtMatmulPreferenceCreate(void **preference) {
  MAY_FAIL();
  return preferences.create(preference, new Preference);
}

int cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *value, size_t bytes) {
  MAY_FAIL();
  Preference *p = preferences.find(preference);
  return result(p && attribute == MaxWorkspace && copy(p->workspace, value, bytes));
}

int cublasLtMatmulPreferenceDestroy(void *preference) {
  MAY_FAIL();
  return preferences.destroy(preference);
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d, void *preference, int wanted, Heuristic *found,
                                   int *count) {
  MAY_FAIL();
  own(handle, __func__);
  Operation *o = operations.find(operation);
  Layout *l[] = {layouts.find(a), layouts.find(b), layouts.find(c), layouts.find(d)};
  Preference *p = preferences.find(preference);
  if (!o || !l[0] || !l[1] || !l[2] || !l[3] || !p || wanted < 1 || !found || !count)
    return InvalidValue;
  Problem problem{*o, *l[0], *l[1], *l[2], *l[3]};
  *count = 0;
  Status s = problem.check();
  if (s != Success)
    return s;
  // Long sums are divided, for which there must be room.
  size_t workspace = problem.depth() >= 64 ? problem.d.rows * problem.d.cols * problem.d.batch * 4 : 0;
  if (workspace > p->workspace)
    workspace = 0;
  memset(found, 0, sizeof *found);
  Algorithm algorithm{known, workspace, problem.hash()};
  memcpy(found->algo, &algorithm, sizeof algorithm);
  found->workspace = workspace;
  found->state = Success;
  found->waves = 1;
  *count = 1;
  return Success;
}

int cublasLtMatmul(void *handle, void *operation, const float *alpha, Address A, void *a, Address B, void *b, const float *beta, Address C, void *c, Address D,
                   void *d, const uint64_t *algo, Address workspace, size_t bytes, void *stream) {
  MAY_FAIL();
  own(handle, __func__);
  Operation *o = operations.find(operation);
  Layout *l[] = {layouts.find(a), layouts.find(b), layouts.find(c), layouts.find(d)};
  if (!o || !l[0] || !l[1] || !l[2] || !l[3] || !alpha || !beta || !algo || !A || !B || !D || (*beta != 0 && !C))
    return InvalidValue;
  Problem problem{*o, *l[0], *l[1], *l[2], *l[3]};
  Status s = problem.check();
  if (s != Success)
    return s;
  Algorithm algorithm;
  memcpy(&algorithm, algo, sizeof algorithm);
  if (algorithm.magic != known || algorithm.hash != problem.hash() || bytes < algorithm.workspace || (algorithm.workspace && !workspace))
    return InvalidValue;
  // Kernels were chosen for addresses that are multiples of 256.
  for (Address at : {A, B, D, workspace})
    if (at % 256 != 0)
      return InvalidValue;
  const Layout &x = problem.a, &y = problem.b, &z = problem.d;
  if (!holds(A, x.bytes()) || !holds(B, y.bytes()) || !holds(D, z.bytes()) || (*beta != 0 && !holds(C, z.bytes())) ||
      (o->bias && !holds(o->bias, z.rows * z.size())) || (algorithm.workspace && !holds(workspace, algorithm.workspace))) {
    fprintf(stderr, "cublaslt: an operand is not in memory of the device\n");
    return ExecutionFailed;
  }
  if (!static_cast<Handle *>(handle)->loads.can(stream, algorithm.hash))
    return ExecutionFailed;
  float scale[] = {*alpha, *beta};
  return enqueue(stream, "cublaslt_product", [=] {
           if (algorithm.workspace)
             memset(reinterpret_cast<void *>(workspace), 0xff, algorithm.workspace);
           problem.run(scale[0], scale[1], A, B, C, D);
           return true;
         })
             ? Success
             : ExecutionFailed;
}

} // extern "C"
