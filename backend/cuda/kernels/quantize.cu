// Between floats and 8-bit integers.
#include "spc/mma8.cuh"

namespace spc {

// Scales is scales and zero points, which may be missing, for all elements, or so many of them for
// runs of step elements in turn.
struct Scales {
  const float *scale;
  const uint8_t *zero;
  int count;
  int64_t step;
  __device__ __forceinline__ int of(int64_t at) const { return count > 1 ? int(at / step % count) : 0; }
};

// four has each thread compute four elements of n, where f(v, to, i) stores what becomes of v =
// x[i] in y[i]. Both lie at multiples of four elements. Grid (ceil(n/4/256)).
template <class X, class Y, class F> __device__ __forceinline__ void four(const X *x, Y *y, int64_t n, F f) {
  int64_t at = (int64_t(blockIdx.x) * 256 + threadIdx.x) * 4;
  if (at + 4 <= n) {
    Vec<X, 4> v = *reinterpret_cast<const Vec<X, 4> *>(x + at);
    Vec<Y, 4> out;
#pragma unroll
    for (int i = 0; i < 4; i++)
      f(v.at[i], out.at[i], at + i);
    *reinterpret_cast<Vec<Y, 4> *>(y + at) = out;
    return;
  }
  for (; at < n; at++)
    f(x[at], y[at], at);
}

template <class T> __device__ __forceinline__ void quantize(const T *x, u8 *y, int64_t n, const Scales &s) {
  four(x, y, n, [&](T v, u8 &to, int64_t at) {
    int i = s.of(at);
    to.bits = quantized(number(v), s.scale[i], s.zero ? s.zero[i] : 0);
  });
}

template <class T> __device__ __forceinline__ void dequantize(const u8 *x, T *y, int64_t n, const Scales &s) {
  four(x, y, n, [&](u8 v, T &to, int64_t at) {
    int i = s.of(at);
    put(to, float(v.bits - (s.zero ? s.zero[i] : 0)) * s.scale[i]);
  });
}

} // namespace spc

#define QUANTIZE(T) \
  SPC_KERNEL(T##_quantize, 256, (const spc::T *x, spc::u8 *y, int64_t n, const float *scale, const uint8_t *zero, int count, int64_t step), \
             (spc::quantize(x, y, n, spc::Scales{scale, zero, count, step}))) \
  SPC_KERNEL(T##_dequantize, 256, (const spc::u8 *x, spc::T *y, int64_t n, const float *scale, const uint8_t *zero, int count, int64_t step), \
             (spc::dequantize(x, y, n, spc::Scales{scale, zero, count, step})))
QUANTIZE(f32)
QUANTIZE(f16)
QUANTIZE(bf16)
