// Chains of functions that are applied element by element: a program of a few instructions, the
// same for all threads, goes through each element's values in registers, so that what lies
// between its steps is not in memory.
#include "spc/device.cuh"

namespace spc {

enum Function { SPC_FUNCTIONS };

using i64 = int64_t;

// What an operand holds.
enum Kind { SPC_CHAIN_KINDS };

// rare computes functions that are seldom in chains, or long.
__device__ __noinline__ float rare(int f, float a, float b, float x, float y) {
  switch (f) {
  case Sin: return sinf(x);
  case Cos: return cosf(x);
  case Tan: return tanf(x);
  case Asin: return asinf(x);
  case Acos: return acosf(x);
  case Atan: return atanf(x);
  case Sinh: return sinhf(x);
  case Cosh: return coshf(x);
  case Asinh: return asinhf(x);
  case Acosh: return acoshf(x);
  case Atanh: return atanhf(x);
  case Softplus: return x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x));
  case Softsign: return x / (1 + fabsf(x));
  case Mish: return x * tanhf(x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x)));
  case Elu: return x < 0 ? a * expm1f(x) : x;
  case Selu: return b * (x > 0 ? x : a * expm1f(x));
  case Celu: return x < 0 ? a * expm1f(x / a) : x;
  case Log: return logf(x);
  case Round: return rintf(x);
  case Pow: return powf(x, y);
  case FMod: return fmodf(x, y);
  case Mod: {
    float r = fmodf(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
  }
  }
  return activate(f, a, b, x);
}

// apply is a function of floats; SPC_EACH writes what it is of element e of the vectors.
#define SPC_EACH(value) \
  _Pragma("unroll") for (int e = 0; e < V; e++) \
    r[e] = value; \
  return

template <int V> __device__ __forceinline__ void apply(int f, float a, float b, float (&r)[V], const float (&x)[V], const float (&y)[V], const float (&z)[V]) {
  switch (f) {
  case Copy: SPC_EACH(x[e]);
  case Clip: SPC_EACH(clip(x[e], a, b));
  case LeakyRelu: SPC_EACH(x[e] < 0 ? a * x[e] : x[e]);
  case HardSigmoid: SPC_EACH(clip(a * x[e] + b, 0, 1));
  case HardSwish: SPC_EACH(x[e] * clip(x[e] / 6 + 0.5f, 0, 1));
  case Sigmoid: SPC_EACH(1 / (1 + expf(-x[e])));
  case Swish: SPC_EACH(x[e] / (1 + expf(-a * x[e])));
  case Abs: SPC_EACH(fabsf(x[e]));
  case Neg: SPC_EACH(-x[e]);
  case Not: SPC_EACH(x[e] == 0);
  case NotZero: SPC_EACH(x[e] != 0);
  case Sign: SPC_EACH(x[e] > 0 ? 1 : x[e] < 0 ? -1 : x[e]);
  case Ceil: SPC_EACH(ceilf(x[e]));
  case Floor: SPC_EACH(floorf(x[e]));
  case Sqrt: SPC_EACH(sqrtf(x[e]));
  case Reciprocal: SPC_EACH(1 / x[e]);
  case Exp: SPC_EACH(expf(x[e]));
  case Erf: SPC_EACH(erff(x[e]));
  case IsNaN: SPC_EACH(x[e] != x[e]);
  case IsInf: SPC_EACH((a != 0 && x[e] == -INFINITY) || (b != 0 && x[e] == INFINITY));
  case ThresholdedRelu: SPC_EACH(x[e] > a ? x[e] : 0);
  case Add: SPC_EACH(x[e] + y[e]);
  case Sub: SPC_EACH(x[e] - y[e]);
  case Mul: SPC_EACH(x[e] * y[e]);
  case Div: SPC_EACH(x[e] / y[e]);
  case Max: SPC_EACH(x[e] != x[e] || x[e] > y[e] ? x[e] : y[e]); // NaN where either is
  case Min: SPC_EACH(x[e] != x[e] || x[e] < y[e] ? x[e] : y[e]);
  case PRelu: SPC_EACH(x[e] < 0 ? x[e] * y[e] : x[e]);
  case Equal: SPC_EACH(x[e] == y[e]);
  case Less: SPC_EACH(x[e] < y[e]);
  case LessOrEqual: SPC_EACH(x[e] <= y[e]);
  case Greater: SPC_EACH(x[e] > y[e]);
  case GreaterOrEqual: SPC_EACH(x[e] >= y[e]);
  case And: SPC_EACH(x[e] != 0 && y[e] != 0);
  case Or: SPC_EACH(x[e] != 0 || y[e] != 0);
  case Xor: SPC_EACH((x[e] != 0) != (y[e] != 0));
  case Where: SPC_EACH(x[e] != 0 ? y[e] : z[e]);
  }
  SPC_EACH(rare(f, a, b, x[e], y[e]));
}

// wrapped is a sum, difference or product modulo 2^64.
__device__ __forceinline__ int64_t wrapped(uint64_t v) { return static_cast<int64_t>(v); }

// modulo is the remainder with the sign of the divisor.
__device__ __forceinline__ int64_t modulo(int64_t x, int64_t y) {
  int64_t r = x % y;
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

// apply is a function of integers. A quotient by 0 is 0, and so is its remainder.
template <int V>
__device__ __forceinline__ void apply(int f, int64_t, int64_t, int64_t (&r)[V], const int64_t (&x)[V], const int64_t (&y)[V], const int64_t (&z)[V]) {
  using Bits = uint64_t;
  switch (f) {
  case Copy: SPC_EACH(x[e]);
  case Abs: SPC_EACH(x[e] < 0 ? wrapped(-Bits(x[e])) : x[e]);
  case Neg: SPC_EACH(wrapped(-Bits(x[e])));
  case Not: SPC_EACH(x[e] == 0);
  case NotZero: SPC_EACH(x[e] != 0);
  case Sign: SPC_EACH((x[e] > 0) - (x[e] < 0));
  case Narrow: SPC_EACH(static_cast<int32_t>(x[e]));
  case Add: SPC_EACH(wrapped(Bits(x[e]) + Bits(y[e])));
  case Sub: SPC_EACH(wrapped(Bits(x[e]) - Bits(y[e])));
  case Mul: SPC_EACH(wrapped(Bits(x[e]) * Bits(y[e])));
  case Div: SPC_EACH(y[e] == 0 ? 0 : y[e] == -1 ? wrapped(-Bits(x[e])) : x[e] / y[e]);
  case FMod: SPC_EACH(y[e] == 0 || y[e] == -1 ? 0 : x[e] % y[e]);
  case Mod: SPC_EACH(y[e] == 0 || y[e] == -1 ? 0 : modulo(x[e], y[e]));
  case Max: SPC_EACH(x[e] > y[e] ? x[e] : y[e]);
  case Min: SPC_EACH(x[e] < y[e] ? x[e] : y[e]);
  case Equal: SPC_EACH(x[e] == y[e]);
  case Less: SPC_EACH(x[e] < y[e]);
  case LessOrEqual: SPC_EACH(x[e] <= y[e]);
  case Greater: SPC_EACH(x[e] > y[e]);
  case GreaterOrEqual: SPC_EACH(x[e] >= y[e]);
  case And: SPC_EACH(x[e] & y[e]);
  case Or: SPC_EACH(x[e] | y[e]);
  case Xor: SPC_EACH(x[e] ^ y[e]);
  case Where: SPC_EACH(x[e] != 0 ? y[e] : z[e]);
  }
}

#undef SPC_EACH

// get and set convert between the elements of operands and registers.
template <class T> __device__ __forceinline__ void get(float &r, const T *x) { r = number(*x); }
__device__ __forceinline__ void get(float &r, const int64_t *x) { r = static_cast<float>(*x); }
__device__ __forceinline__ void get(float &r, const int32_t *x) { r = static_cast<float>(*x); }
__device__ __forceinline__ void get(float &r, const uint8_t *x) { r = *x; }
__device__ __forceinline__ void get(float &r, const int8_t *x) { r = *x; }
template <class T> __device__ __forceinline__ void get(int64_t &r, const T *x) { r = *x; }
template <class T> __device__ __forceinline__ void set(T *y, float r) { put(*y, r); }
__device__ __forceinline__ void set(int64_t *y, float r) { *y = static_cast<int64_t>(r); }
__device__ __forceinline__ void set(int32_t *y, float r) { *y = static_cast<int32_t>(r); }
__device__ __forceinline__ void set(uint8_t *y, float r) { *y = static_cast<uint8_t>(r); }
template <class T> __device__ __forceinline__ void set(T *y, int64_t r) { *y = static_cast<T>(r); }

// read loads count of V elements that are step apart, all at once where they can be.
template <class T, class R, int V> __device__ __forceinline__ void read(R (&r)[V], const void *x, int from, int step, int count) {
  const T *at = static_cast<const T *>(x) + from;
  if (V > 1 && step == 1 && count == V) {
    Vec<T, V> all = *reinterpret_cast<const Vec<T, V> *>(at);
#pragma unroll
    for (int e = 0; e < V; e++)
      get(r[e], &all.at[e]);
    return;
  }
#pragma unroll
  for (int e = 0; e < V; e++)
    if (e < count)
      get(r[e], at + e * step);
}

template <class T, class R, int V> __device__ __forceinline__ void write(const R (&r)[V], void *y, int64_t from, int count) {
  T *to = static_cast<T *>(y) + from;
  if (V > 1 && count == V) {
    Vec<T, V> all;
#pragma unroll
    for (int e = 0; e < V; e++)
      set(&all.at[e], r[e]);
    *reinterpret_cast<Vec<T, V> *>(to) = all;
    return;
  }
#pragma unroll
  for (int e = 0; e < V; e++)
    if (e < count)
      set(to + e, r[e]);
}

// parameter is a word of an instruction.
template <class R> __device__ __forceinline__ R parameter(int word) { return word; }
template <> __device__ __forceinline__ float parameter<float>(int word) { return bits2float(static_cast<uint32_t>(word)); }

// copy is written out by element, and pick and keep by register, so that no index is left which
// only a thread at run time knows: the array would lie in memory.
template <class R, int V> __device__ __forceinline__ void copy(R (&v)[V], const R (&u)[V]) {
#pragma unroll
  for (int e = 0; e < V; e++)
    v[e] = u[e];
}

#define SPC_REGISTERS(each) each(0) each(1) each(2) each(3) each(4) each(5) each(6) each(7)

// pick is the value of a register, or splat where there is none of that number.
template <class R, int V> __device__ __forceinline__ void pick(R (&v)[V], const R (&r)[ChainRegisters][V], int number, R splat) {
#define SPC_PICK(k) \
  case k: return copy(v, r[k]);
  switch (number) { SPC_REGISTERS(SPC_PICK) }
#undef SPC_PICK
#pragma unroll
  for (int e = 0; e < V; e++)
    v[e] = splat;
}

// keep sets a register.
template <class R, int V> __device__ __forceinline__ void keep(R (&r)[ChainRegisters][V], int number, const R (&v)[V]) {
#define SPC_KEEP(k) \
  case k: return copy(r[k], v);
  switch (number) { SPC_REGISTERS(SPC_KEEP) }
#undef SPC_KEEP
}

// chain gives V of n elements of y to a thread; the last axis has a multiple of V of them, or is
// the only one. Values are held as R, and T is what operands of the kind Own hold. program is,
// in words of 32 bits:
//
//   the numbers of operands, of axes and of instructions, the result's register and kind
//   the size of each axis of y
//   the kind of each operand
//   for each operand its stride along each axis
//   for each instruction its function, the registers of its result and of two values, and two
//   words: parameters, a float or an integer as R is, the second of Where the third value's register
//
// Operand k is loaded to register k before the first instruction. Value 8 is the first parameter.
// Grid (ceil(n/256V)).
template <class T, class R, int V>
__device__ __forceinline__ void chain(const int *program, const void *x0, const void *x1, const void *x2, const void *x3, const void *x4, const void *x5, void *y,
                                      int64_t n) {
  int64_t first = (int64_t(blockIdx.x) * FlatThreads + threadIdx.x) * V;
  if (first >= n)
    return;
  int operands = program[0], rank = program[1], instructions = program[2], result = program[3], kind = program[4];
  const int *size = program + 5, *kinds = size + rank, *strides = kinds + operands, *code = strides + operands * rank;
  const void *x[ChainOperands] = {x0, x1, x2, x3, x4, x5};
  int from[ChainOperands] = {};
  unsigned left = static_cast<unsigned>(first);
  for (int d = rank - 1; d >= 0; d--) {
    int at = static_cast<int>(d == 0 ? left : left % size[d]);
    left /= size[d];
#pragma unroll
    for (int k = 0; k < ChainOperands; k++)
      if (k < operands)
        from[k] += at * strides[k * rank + d];
  }
  int count = n - first < V ? int(n - first) : V;
  R r[ChainRegisters][V] = {};
#pragma unroll
  for (int k = 0; k < ChainOperands; k++) {
    if (k >= operands)
      continue;
    int step = strides[k * rank + rank - 1];
    switch (kinds[k]) {
    case Own: read<T>(r[k], x[k], from[k], step, count); break;
    case I64: read<int64_t>(r[k], x[k], from[k], step, count); break;
    case I32: read<int32_t>(r[k], x[k], from[k], step, count); break;
    case U8: read<uint8_t>(r[k], x[k], from[k], step, count); break;
    case I8: read<int8_t>(r[k], x[k], from[k], step, count); break;
    }
  }
  for (int i = 0; i < instructions; i++, code += 6) {
    R a = parameter<R>(code[4]), b = parameter<R>(code[5]), u[V], v[V], w[V], out[V] = {};
    pick(u, r, code[2], a);
    pick(v, r, code[3], a);
    if (code[0] == Where)
      pick(w, r, code[5], a);
    else
      copy(w, u);
    apply<V>(code[0], a, b, out, u, v, w);
    keep(r, code[1], out);
  }
  R out[V];
  pick(out, r, result, R(0));
  switch (kind) {
  case Own: write<T>(out, y, first, count); break;
  case I64: write<int64_t>(out, y, first, count); break;
  case I32: write<int32_t>(out, y, first, count); break;
  case U8: write<uint8_t>(out, y, first, count); break;
  }
}

} // namespace spc

#define CHAIN(T, R, V) \
  SPC_KERNEL(T##_chain_x##V, 256, \
             (const int *program, const void *x0, const void *x1, const void *x2, const void *x3, const void *x4, const void *x5, void *y, int64_t n), \
             (spc::chain<spc::T, R, V>(program, x0, x1, x2, x3, x4, x5, y, n)))
CHAIN(f32, float, 1)
CHAIN(f32, float, 4)
CHAIN(f16, float, 1)
CHAIN(f16, float, 4)
CHAIN(bf16, float, 1)
CHAIN(bf16, float, 4)
CHAIN(i64, int64_t, 1)
