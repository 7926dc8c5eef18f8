// device.cuh is what kernels are written against: nvcc compiles them for a GPU, and any
// C++17 compiler for the emulator of tests/simt. Kernels use nothing of CUDA C++ that is
// not named here or in simt.h.
#pragma once

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#define SPC_SHARED(type, name) __shared__ type name
#define SPC_DYNAMIC(type, name) \
  extern __shared__ __align__(1024) unsigned char spc_dynamic[]; \
  type *name = reinterpret_cast<type *>(spc_dynamic)
#define SPC_REGISTER(kernel)
#else
#include "simt.h"
// Shared variables begin poisoned, and bounds of each are checked by AddressSanitizer.
#define SPC_SHARED(type, name) \
  static char name##_declared; \
  type &name = *simt::shared<type>(&name##_declared)
#define SPC_DYNAMIC(type, name) type *name = reinterpret_cast<type *>(simt::block->dynamic.memory.get())
#define SPC_REGISTER(kernel) static simt::Registered kernel##_registered(#kernel, kernel);
#endif

// SPC_KERNEL declares a kernel with C linkage that is launched with so many threads:
// SPC_KERNEL(name, threads, (parameters), call). Bounds of SPC_KERNEL_WITHIN are those, and how many blocks
// a multiprocessor has to hold at least.
#define SPC_KERNEL_WITHIN(name, bounds, parameters, call) \
  extern "C" __global__ void __launch_bounds__ bounds name parameters { call; } \
  SPC_REGISTER(name)
#define SPC_KERNEL(name, threads, parameters, call) SPC_KERNEL_WITHIN(name, (threads), parameters, call)

#include "spc/numbers.cuh"

namespace spc {

// f32, f16, bf16 and u8 as they lie in memory.
using f32 = float;
struct f16 { uint16_t bits; };
struct bf16 { uint16_t bits; };
struct u8 { uint8_t bits; };

#if defined(__CUDACC__)
__device__ __forceinline__ float number(f16 h) { return __half2float(__ushort_as_half(h.bits)); }
__device__ __forceinline__ float number(bf16 h) { return __uint_as_float(uint32_t(h.bits) << 16); }
__device__ __forceinline__ void put(f16 &to, float v) { to.bits = __half_as_ushort(__float2half_rn(v)); }
__device__ __forceinline__ void put(bf16 &to, float v) { to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(v)); }
__device__ __forceinline__ float bits2float(uint32_t u) { return __uint_as_float(u); }
__device__ __forceinline__ uint32_t float2bits(float v) { return __float_as_uint(v); }
#else
inline float bits2float(uint32_t u) {
  float v;
  memcpy(&v, &u, 4);
  return v;
}
inline uint32_t float2bits(float v) {
  uint32_t u;
  memcpy(&u, &v, 4);
  return u;
}
inline float number(bf16 h) { return bits2float(uint32_t(h.bits) << 16); }
inline float number(f16 h) {
  uint32_t sign = uint32_t(h.bits >> 15) << 31, exponent = h.bits >> 10 & 31, fraction = h.bits & 1023;
  if (exponent == 31)
    return bits2float(sign | 0x7f800000 | fraction << 13);
  if (exponent == 0)
    return bits2float(sign | float2bits(std::ldexp(float(fraction), -24)));
  return bits2float(sign | (exponent + 112) << 23 | fraction << 13);
}
// Both round to the nearest, ties to even.
inline void put(f16 &to, float v) {
  uint32_t u = float2bits(v), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
  if (a > 0x7f800000)
    to.bits = uint16_t(sign | 0x7fff);
  else if (a >= 0x477ff000)
    to.bits = uint16_t(sign | 0x7c00);
  else if (a < 0x38800000)
    to.bits = uint16_t(sign | uint32_t(std::lrint(std::ldexp(bits2float(a), 24))));
  else
    to.bits = uint16_t(sign | (a + 0xfff + (a >> 13 & 1) - 0x38000000) >> 13);
}
inline void put(bf16 &to, float v) {
  uint32_t u = float2bits(v);
  to.bits = uint16_t((u & 0x7fffffff) > 0x7f800000 ? (u | 0x400000) >> 16 : (u + 0x7fff + (u >> 16 & 1)) >> 16);
}
#endif
__device__ __forceinline__ float number(float v) { return v; }
__device__ __forceinline__ void put(float &to, float v) { to = v; }
__device__ __forceinline__ float number(u8 v) { return v.bits; }
// put stores a whole number that u8 holds.
__device__ __forceinline__ void put(u8 &to, float v) { to.bits = v > 0 ? uint8_t(v) : 0; }

// Vec is V elements that are loaded and stored at once; their address is a multiple of
// their size.
template <class T, int V> struct alignas(V * sizeof(T) < 16 ? V * sizeof(T) : 16) Vec { T at[V]; };

// Activations that epilogues apply.
enum Activation { SPC_ACTIVATIONS };

// clip passes NaN on, and gives hi where that is below lo.
__device__ __forceinline__ float clip(float v, float lo, float hi) {
  v = v < lo ? lo : v;
  return v > hi ? hi : v;
}

__device__ __forceinline__ float activate(int act, float a, float b, float v) {
  switch (act) {
  case Clip: return clip(v, a, b);
  case LeakyRelu: return v < 0 ? a * v : v;
  case HardSigmoid: return clip(a * v + b, 0, 1);
  case HardSwish: return v * clip(v / 6 + 0.5f, 0, 1);
  case Sigmoid: return 1 / (1 + expf(-v));
  case Tanh: return tanhf(v);
  case Swish: return v / (1 + expf(-a * v));
  case Gelu: return 0.5f * v * (1 + erff(v * 0.70710678f));
  case GeluTanh: return 0.5f * v * (1 + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));
  }
  return v;
}

// The driver binding moves parameters of up to 8 bytes, so kernels take no structs.

// SPC_EPILOGUE is the parameters by which a kernel finishes the element of row m of a
// product W X: act(alpha[m] * y + bias[m] + residual), each of which may be missing.
#define SPC_EPILOGUE const float *alpha, const float *bias, const void *residual, int act, float act_a, float act_b
#define SPC_EPILOGUE_ARGS alpha, bias, residual, act, act_a, act_b

// Epilogue is those parameters, where the residual and the result have type T.
template <class T> struct Epilogue {
  const float *alpha, *bias;
  const T *residual;
  int act;
  float a, b;
  __device__ Epilogue(SPC_EPILOGUE)
      : alpha(alpha), bias(bias), residual(static_cast<const T *>(residual)), act(act), a(act_a), b(act_b) {}
  // finish is the element of row m whose place in the result is at.
  __device__ __forceinline__ float finish(float y, int m, size_t at) const {
    if (alpha)
      y *= alpha[m];
    if (bias)
      y += bias[m];
    if (residual)
      y += number(residual[at]);
    return act == None ? y : activate(act, a, b, y);
  }
};

// Patches is how images that begin x_batch apart are matrices X whose columns are what the pixels of
// a convolution's result read: row k of pixel p is element (p/outW*strideH + y, p%outW*strideW + x)
// of the plane that tap k says, and 0 outside of it. There are K taps behind it.
// Images whose channels come last, a multiple of 8 of them, have 8 channels of a pixel in rows 8*k to 8*k+7, and tap k is for
// all of these. Of such a matrix every so many pixels are another image, which begins image elements after the one before.
struct Patches { int32_t inH, inW, outW, strideH, strideW, channels, pixels, image; }; // channels: 0 where they come first
struct Tap {
  int32_t plane; // where it begins in an image, or the first of 8 channels
  int16_t y, x;
};

// SPC_OPERANDS is the parameters that tell the operands of a product Y = W X, of which
// block z of the grid computes matrix z.
#define SPC_OPERANDS(T) \
  const T *x, T *y, int M, int K, int N, int64_t x_row, int64_t x_column, int64_t x_batch, int64_t y_row, int64_t y_column, int64_t y_batch, \
      const void *patches, float *sums, int splits
#define SPC_OPERANDS_ARGS x, y, M, K, N, x_row, x_column, x_batch, y_row, y_column, y_batch, patches, sums, splits

// Operands is those parameters. Element (k,n) of matrix b of X is at k*xRow + n*xColumn +
// b*xBatch, and so in Y; where there are patches, which kernels on tensor cores take, X is those. They
// also divide a product's K among splits blocks, which are a grid for all matrices each and write what they add up to sums,
// one Y after another.
template <class T> struct Operands {
  const T *x;
  T *y;
  int M, K, N;
  int64_t xRow, xColumn, xBatch, yRow, yColumn, yBatch;
  const Patches *patches;
  float *sums;
  int splits, matrix, split; // the block's of both
  __device__ Operands(SPC_OPERANDS(T))
      : x(x), y(y), M(M), K(K), N(N), xRow(x_row), xColumn(x_column), xBatch(x_batch), yRow(y_row), yColumn(y_column), yBatch(y_batch),
        patches(static_cast<const Patches *>(patches)), sums(sums), splits(splits), matrix(blockIdx.z), split(0) {
    if (splits > 1) {
      int matrices = gridDim.z / splits;
      matrix = blockIdx.z % matrices;
      split = blockIdx.z / matrices;
    }
  }
  // last reports whether X is patches of images whose channels come last, and down whether rows of X are neighbours.
  __device__ __forceinline__ bool last() const { return patches && patches->channels > 0; }
  __device__ __forceinline__ bool down() const { return patches ? last() : xRow == 1; }
  // share is which of so many slabs are the block's: from first to count-1.
  __device__ __forceinline__ void share(int slabs, int &first, int &count) const {
    first = int64_t(slabs) * split / splits;
    count = int64_t(slabs) * (split + 1) / splits;
  }
  // vectors reports whether V neighbours in a row of X can be loaded at once.
  __device__ __forceinline__ bool vectors(int V) const {
    return xColumn == 1 && xRow % V == 0 && xBatch % V == 0 && reinterpret_cast<uintptr_t>(x) % (V * sizeof(T)) == 0;
  }
  // store finishes element (m,n) of the block's matrix and writes it, or writes its sum.
  __device__ __forceinline__ void store(const Epilogue<T> &e, float v, int m, int n) const {
    size_t at = m * yRow + n * yColumn + matrix * yBatch;
    if (sums)
      sums[size_t(gridDim.z / splits) * M * N * split + at] = v;
    else
      put(y[at], e.finish(v, m, at));
  }
};

} // namespace spc
