// Convolutions and pools over images [images][channels][height][width].
#include "spc/device.cuh"

namespace spc {

// Window is how a kernel slides over an image: SPC_WINDOW are its parameters, those of the
// rows before those of the columns.
#define SPC_WINDOW \
  int in_h, int in_w, int out_h, int out_w, int k_h, int k_w, int stride_h, int stride_w, int dilation_h, int dilation_w, int pad_h, int pad_w
#define SPC_WINDOW_ARGS in_h, in_w, out_h, out_w, k_h, k_w, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w

struct Window {
  int inH, inW, outH, outW, kH, kW, strideH, strideW, dilationH, dilationW, padH, padW;
  __device__ Window(SPC_WINDOW)
      : inH(in_h), inW(in_w), outH(out_h), outW(out_w), kH(k_h), kW(k_w), strideH(stride_h), strideW(stride_w), dilationH(dilation_h),
        dilationW(dilation_w), padH(pad_h), padW(pad_w) {}
  // place is where in an image tap (i,j) of output pixel p lies, -1 outside.
  __device__ __forceinline__ int place(int p, int i, int j) const {
    int y = p / outW * strideH + i * dilationH - padH, x = p % outW * strideW + j * dilationW - padW;
    return y < 0 || y >= inH || x < 0 || x >= inW ? -1 : y * inW + x;
  }
};

// patches writes X[channels*kH*kW][outH*outW], of which column p is what output pixel p of a
// convolution reads, for one image after the other, zeros outside of it; n elements in all.
// Grid (ceil(n/256)).
template <class T> __device__ __forceinline__ void patches(const T *x, T *y, int64_t n, const Window &w) {
  int64_t at = int64_t(blockIdx.x) * FlatThreads + threadIdx.x;
  if (at >= n)
    return;
  int pixels = w.outH * w.outW, taps = w.kH * w.kW;
  int64_t row = at / pixels;
  int tap = int(row % taps), from = w.place(int(at % pixels), tap / w.kW, tap % w.kW);
  if (from < 0)
    put(y[at], 0.f);
  else
    y[at] = x[row / taps * w.inH * w.inW + from];
}

// grouped is a convolution of groups of channels, each of which gives perOut channels from
// perIn, weights [channels out][perIn][kH][kW]; n elements in all. A thread computes one.
// Grid (ceil(n/256)).
template <class T>
__device__ __forceinline__ void grouped(const T *weights, const T *x, T *y, int64_t n, int channels, int perIn, int perOut, int groups, const Window &w, const Epilogue<T> &e) {
  int64_t at = int64_t(blockIdx.x) * FlatThreads + threadIdx.x;
  if (at >= n)
    return;
  int pixels = w.outH * w.outW, p = int(at % pixels), channel = int(at / pixels % channels), taps = w.kH * w.kW;
  int64_t image = at / pixels / channels;
  const T *mine = weights + int64_t(channel) * perIn * taps;
  const T *from = x + (image * groups * perIn + int64_t(channel / perOut) * perIn) * w.inH * w.inW;
  float sum = 0;
  for (int c = 0; c < perIn; c++)
    for (int i = 0; i < w.kH; i++)
      for (int j = 0; j < w.kW; j++) {
        int place = w.place(p, i, j);
        if (place >= 0)
          sum += number(mine[(c * w.kH + i) * w.kW + j]) * number(from[int64_t(c) * w.inH * w.inW + place]);
      }
  put(y[at], e.finish(sum, channel, at));
}

// depthwise is a convolution of each channel with K x K weights of its own, [channels][K][K], at steps
// of S. A thread computes 4 neighbours of a row from what it loads once. Grid
// (ceil(outH*ceil(outW/4)/128), channels, images).
template <class T, int K, int S> __device__ __forceinline__ void depthwise(const T *weights, const T *x, T *y, const Window &w, const Epilogue<T> &e) {
  constexpr int Each = 4, Loads = (Each - 1) * S + K;
  int across = (w.outW + Each - 1) / Each, at = blockIdx.x * 128 + threadIdx.x, row = at / across, first = (at - row * across) * Each, channel = blockIdx.y;
  if (row >= w.outH)
    return;
  const T *mine = weights + channel * K * K;
  size_t plane = size_t(blockIdx.z) * gridDim.y + channel;
  const T *from = x + plane * w.inH * w.inW;
  float sum[Each] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < K; i++) {
    int r = row * S + i - w.padH;
    if (r < 0 || r >= w.inH)
      continue;
    float line[Loads];
#pragma unroll
    for (int j = 0; j < Loads; j++) {
      int c = first * S + j - w.padW;
      line[j] = c >= 0 && c < w.inW ? number(from[r * w.inW + c]) : 0;
    }
#pragma unroll
    for (int j = 0; j < K; j++) {
      float v = number(mine[i * K + j]);
#pragma unroll
      for (int c = 0; c < Each; c++)
        sum[c] += v * line[c * S + j];
    }
  }
#pragma unroll
  for (int c = 0; c < Each; c++)
    if (first + c < w.outW) {
      size_t place = (plane * w.outH + row) * w.outW + first + c;
      put(y[place], e.finish(sum[c], channel, place));
    }
}

// patchesLast writes X[outH*outW][kH*kW*channels] of images whose channels come last, for one image after the other, n times
// 8 elements in all. Grid (ceil(n/256)).
template <class T> __device__ __forceinline__ void patchesLast(const T *x, T *y, int64_t n, int channels, const Window &w) {
  int64_t at = int64_t(blockIdx.x) * FlatThreads + threadIdx.x;
  if (at >= n)
    return;
  int pixels = w.outH * w.outW, taps = w.kH * w.kW, units = channels / ChannelUnit, tap = int(at / units % taps);
  int64_t pixel = at / units / taps;
  int from = w.place(int(pixel % pixels), tap / w.kW, tap % w.kW);
  auto eight = Vec<T, ChannelUnit>();
  if (from >= 0)
    eight = reinterpret_cast<const Vec<T, ChannelUnit> *>(x)[(pixel / pixels * w.inH * w.inW + from) * units + at % units];
  reinterpret_cast<Vec<T, ChannelUnit> *>(y)[at] = eight;
}

// depthwiseLast is depthwise where channels come last, weights [K][K][channels]. A thread computes 8 channels of 4
// neighbours of a row. Grid (ceil(outH*ceil(outW/4)*channels/8/threads), 1, images), of up to 128 threads.
template <class T, int K, int S>
__device__ __forceinline__ void depthwiseLast(const T *weights, const T *x, T *y, int channels, const Window &w, const Epilogue<T> &e) {
  constexpr int Each = 4, Loads = (Each - 1) * S + K;
  using Vec = spc::Vec<T, ChannelUnit>;
  int units = channels / ChannelUnit, across = (w.outW + Each - 1) / Each, at = blockIdx.x * blockDim.x + threadIdx.x, unit = at % units, group = at / units;
  int row = group / across, first = (group - row * across) * Each;
  if (row >= w.outH)
    return;
  const Vec *mine = reinterpret_cast<const Vec *>(weights) + unit;
  const Vec *from = reinterpret_cast<const Vec *>(x) + int64_t(blockIdx.z) * w.inH * w.inW * units + unit;
  float sum[Each][ChannelUnit] = {};
#pragma unroll
  for (int i = 0; i < K; i++) {
    int r = row * S + i - w.padH;
    if (r < 0 || r >= w.inH)
      continue;
    Vec weight[K];
#pragma unroll
    for (int j = 0; j < K; j++)
      weight[j] = mine[(i * K + j) * units];
#pragma unroll
    for (int l = 0; l < Loads; l++) {
      int column = first * S + l - w.padW;
      if (column < 0 || column >= w.inW)
        continue;
      Vec eight = from[(int64_t(r) * w.inW + column) * units];
#pragma unroll
      for (int c = 0; c < Each; c++)
        if (l >= c * S && l < c * S + K)
#pragma unroll
          for (int v = 0; v < ChannelUnit; v++)
            sum[c][v] += number(weight[l - c * S].at[v]) * number(eight.at[v]);
    }
  }
#pragma unroll
  for (int c = 0; c < Each; c++)
    if (first + c < w.outW) {
      size_t place = ((size_t(blockIdx.z) * w.outH + row) * w.outW + first + c) * units + unit;
      Vec eight;
#pragma unroll
      for (int v = 0; v < ChannelUnit; v++)
        put(eight.at[v], e.finish(sum[c][v], unit * ChannelUnit + v, place * ChannelUnit + v));
      reinterpret_cast<Vec *>(y)[place] = eight;
    }
}

// The greatest element of a window, and the mean of
// those inside of the image or of those inside of it and its padding.
enum Pool { SPC_POOLS };

// pool takes windows of images of so many channels that come last, which is 1 where each channel is an image of its own; n
// times V elements in all, V channels for a thread. endH and endW pad the other side. Grid (ceil(n/256)).
template <int V, class T> __device__ __forceinline__ void pool(const T *x, T *y, int64_t n, int channels, int kind, int endH, int endW, const Window &w) {
  using Vec = spc::Vec<T, V>;
  int64_t at = int64_t(blockIdx.x) * FlatThreads + threadIdx.x;
  if (at >= n)
    return;
  int pixels = w.outH * w.outW, units = V == 1 ? 1 : channels / V, inside = 0, counted = 0;
  int64_t pixel = at / units;
  int p = int(pixel % pixels);
  const Vec *image = reinterpret_cast<const Vec *>(x) + pixel / pixels * w.inH * w.inW * units + at % units;
  float sum[V], most[V];
#pragma unroll
  for (int v = 0; v < V; v++) {
    sum[v] = 0;
    most[v] = -INFINITY;
  }
  for (int i = 0; i < w.kH; i++)
    for (int j = 0; j < w.kW; j++) {
      int row = p / w.outW * w.strideH + i * w.dilationH - w.padH, column = p % w.outW * w.strideW + j * w.dilationW - w.padW;
      counted += row < w.inH + endH && column < w.inW + endW;
      int place = w.place(p, i, j);
      if (place < 0)
        continue;
      Vec part = image[int64_t(place) * units];
      inside++;
#pragma unroll
      for (int v = 0; v < V; v++) {
        float one = number(part.at[v]);
        sum[v] += one;
        most[v] = one != one || one > most[v] ? one : most[v];
      }
    }
  int by = kind == AveragePadded ? counted : inside;
  Vec out;
#pragma unroll
  for (int v = 0; v < V; v++)
    put(out.at[v], kind == MaxPool ? most[v] : by > 0 ? sum[v] / by : 0);
  reinterpret_cast<Vec *>(y)[at] = out;
}

} // namespace spc

#define DEPTHWISE(T, K, S) \
  SPC_KERNEL(T##_depthwise_##K##x##K##s##S, 128, (const spc::T *weights, const spc::T *x, spc::T *y, SPC_WINDOW, SPC_EPILOGUE), \
             (spc::depthwise<spc::T, K, S>(weights, x, y, spc::Window(SPC_WINDOW_ARGS), spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))))
#define POOL(T, name, V) \
  SPC_KERNEL(T##_##name, 256, (const spc::T *x, spc::T *y, int64_t n, int channels, int kind, int end_h, int end_w, SPC_WINDOW), \
             spc::pool<V>(x, y, n, channels, kind, end_h, end_w, spc::Window(SPC_WINDOW_ARGS)))
#define WINDOW(T) \
  POOL(T, pool, 1) DEPTHWISE(T, 3, 1) DEPTHWISE(T, 3, 2) DEPTHWISE(T, 5, 1) DEPTHWISE(T, 5, 2) \
  SPC_KERNEL(T##_patches, 256, (const spc::T *x, spc::T *y, int64_t n, SPC_WINDOW), spc::patches(x, y, n, spc::Window(SPC_WINDOW_ARGS))) \
  SPC_KERNEL(T##_grouped_conv, 256, (const spc::T *weights, const spc::T *x, spc::T *y, int64_t n, int channels, int per_in, int per_out, int groups, SPC_WINDOW, SPC_EPILOGUE), \
             spc::grouped(weights, x, y, n, channels, per_in, per_out, groups, spc::Window(SPC_WINDOW_ARGS), spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS)))
WINDOW(f32)
WINDOW(f16)
WINDOW(bf16)
POOL(u8, pool, 1)

// Those of images whose channels come last.
#define DEPTHWISE_LAST(T, K, S) \
  SPC_KERNEL(T##_depthwise_last_##K##x##K##s##S, 128, (const spc::T *weights, const spc::T *x, spc::T *y, int channels, SPC_WINDOW, SPC_EPILOGUE), \
             (spc::depthwiseLast<spc::T, K, S>(weights, x, y, channels, spc::Window(SPC_WINDOW_ARGS), spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))))
#define WINDOW_LAST(T) \
  POOL(T, pool_last, 8) DEPTHWISE_LAST(T, 3, 1) DEPTHWISE_LAST(T, 3, 2) DEPTHWISE_LAST(T, 5, 1) DEPTHWISE_LAST(T, 5, 2) \
  SPC_KERNEL(T##_patches_last, 256, (const spc::T *x, spc::T *y, int64_t n, int channels, SPC_WINDOW), spc::patchesLast(x, y, n, channels, spc::Window(SPC_WINDOW_ARGS)))
WINDOW_LAST(f16)
WINDOW_LAST(bf16)
