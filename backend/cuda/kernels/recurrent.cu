// Steps of recurrent layers, whose products with the inputs of all steps were computed before.
#include "spc/device.cuh"

namespace spc {

// A GRU that resets the state before the product has two
// phases: the gates z and r, and with the state times r the rest.
enum Cell { SPC_CELLS };

// SPC_RECURRENT is the parameters of a step: gx[seq][batch][dirs][gates*hidden], the products with the
// inputs and the biases; r[dirs][gates*hidden][hidden]; the first states h and c
// [dirs][batch][hidden], which may be missing; y[seq][dirs][batch][hidden]; what is kept between
// steps and phases, [dirs][batch][hidden] each; after[dirs][hidden], the bias of a GRU's product that
// is reset after it, which may be missing; and the number of the step.
#define SPC_RECURRENT(T) \
  const T *gx, const T *r, const T *h, const T *c, T *y, float *kept, T *reset, const float *after, int cell, int step, int seq, int batch, int hidden, int reverse
#define SPC_RECURRENT_ARGS gx, r, h, c, y, kept, reset, after, cell, step, seq, batch, hidden, reverse

__device__ __forceinline__ float logistic(float v) { return 1 / (1 + expf(-v)); }

// recur gives a hidden unit of a sample to a warp. Grid (ceil(hidden/4), batch, directions).
template <class T> __device__ __forceinline__ void recur(SPC_RECURRENT(T)) {
  int lane = threadIdx.x % 32, unit = blockIdx.x * UnitsOfBlock + threadIdx.x / 32, sample = blockIdx.y, d = blockIdx.z, dirs = gridDim.z;
  if (unit >= hidden)
    return;
  int gates = cell == Lstm ? 4 : cell == Tanh1 ? 1 : 3, first = 0, count = gates;
  if (cell == GruGates)
    count = 2;
  if (cell == GruRest)
    first = 2, count = 1;
  bool backward = d == 1 || reverse;
  int64_t state = (int64_t(d) * batch + sample) * hidden;
  auto place = [&](int s) { return ((int64_t(backward ? seq - 1 - s : s) * dirs + d) * batch + sample) * hidden; };
  const T *before = step > 0 ? y + place(step - 1) : h ? h + state : nullptr, *of = cell == GruRest ? reset + state : before;
  float sums[4] = {};
  if (of)
    for (int k = lane; k < hidden; k += 32) {
      float v = number(of[k]);
#pragma unroll
      for (int g = 0; g < 4; g++)
        if (g < count)
          sums[g] += v * number(r[(int64_t(d * gates + first + g) * hidden + unit) * hidden + k]);
    }
#pragma unroll
  for (int g = 0; g < 4; g++)
    for (int by = 16; by > 0; by /= 2)
      sums[g] += __shfl_xor_sync(~0u, sums[g], by);
  if (lane > 0)
    return;
  const T *x = gx + ((int64_t(backward ? seq - 1 - step : step) * batch + sample) * dirs + d) * gates * hidden + unit;
  float in[4] = {}, old = before ? number(before[unit]) : 0;
#pragma unroll
  for (int g = 0; g < 4; g++)
    if (g < count)
      in[g] = number(x[int64_t(first + g) * hidden]);
  T *to = y + place(step) + unit;
  state += unit;
  switch (cell) {
  case Tanh1: put(*to, tanhf(in[0] + sums[0])); break;
  case Lstm: { // the gates i, o, f, c
    float held = step > 0 ? kept[state] : c ? number(c[state]) : 0;
    held = logistic(in[2] + sums[2]) * held + logistic(in[0] + sums[0]) * tanhf(in[3] + sums[3]);
    kept[state] = held;
    put(*to, logistic(in[1] + sums[1]) * tanhf(held));
    break;
  }
  case GruAfter: { // z, r, h
    float z = logistic(in[0] + sums[0]), by = logistic(in[1] + sums[1]);
    put(*to, (1 - z) * tanhf(in[2] + by * (sums[2] + (after ? after[d * hidden + unit] : 0))) + z * old);
    break;
  }
  case GruGates:
    kept[state] = logistic(in[0] + sums[0]);
    put(reset[state], logistic(in[1] + sums[1]) * old);
    break;
  case GruRest: put(*to, (1 - kept[state]) * tanhf(in[0] + sums[0]) + kept[state] * old); break;
  }
}

// last copies the states after the last step of each direction to [dirs][batch][hidden], n
// elements in all. Grid (ceil(n/256)).
template <class T> __device__ __forceinline__ void last(const T *y, T *to, int n, int seq, int per, int reverse) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= n)
    return;
  int d = i / per, t = d == 1 || reverse ? 0 : seq - 1;
  to[i] = y[(int64_t(t) * (n / per) + d) * per + i % per];
}

} // namespace spc

#define RECURRENT(T) \
  SPC_KERNEL(T##_recurrent, 128, (SPC_RECURRENT(spc::T)), spc::recur<spc::T>(SPC_RECURRENT_ARGS)) \
  SPC_KERNEL(T##_recurrent_last, 256, (const spc::T *y, spc::T *to, int n, int seq, int per, int reverse), spc::last(y, to, n, seq, per, reverse))
RECURRENT(f32)
RECURRENT(f16)
RECURRENT(bf16)
