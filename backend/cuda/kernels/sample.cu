// What samples positions: resizing, transposed convolutions, and rotary embeddings.
#include "spc/device.cuh"

namespace spc {

// resample makes y[outer][heights][middle][widths][inner], n elements in all, from
// x[outer][height][middle][width][inner]: each position along an axis from so many taps, of which
// tables hold the places and the weights. Grid (ceil(n/256)).
template <class T>
__device__ __forceinline__ void resample(const T *x, T *y, int64_t n, int height, int heights, int middle, int width, int widths, int inner, const int *rows,
                                         const float *rowWeights, int rowTaps, const int *columns, const float *columnWeights, int columnTaps) {
  int64_t i = int64_t(blockIdx.x) * FlatThreads + threadIdx.x;
  if (i >= n)
    return;
  int64_t left = i / inner;
  int column = int(left % widths);
  left /= widths;
  int m = int(left % middle);
  left /= middle;
  int row = int(left % heights);
  const T *from = x + left / heights * height * middle * width * inner + i % inner;
  float sum = 0;
  for (int r = 0; r < rowTaps; r++) {
    const T *line = from + (int64_t(rows[row * rowTaps + r]) * middle + m) * width * inner;
    float part = 0;
    for (int c = 0; c < columnTaps; c++)
      part += columnWeights[column * columnTaps + c] * number(line[int64_t(columns[column * columnTaps + c]) * inner]);
    sum += rowWeights[row * rowTaps + r] * part;
  }
  put(y[i], sum);
}

// SPC_STRIDES is the parameters of a transposed convolution of images: output y of an axis is
// covered by tap k of input i where y = i*stride + k*dilation - pad.
#define SPC_STRIDES \
  int in_h, int in_w, int out_h, int out_w, int k_h, int k_w, int stride_h, int stride_w, int dilation_h, int dilation_w, int pad_h, int pad_w

// spread is a transposed convolution of groups of channels, of which perIn give perOut each, weights
// [channels in][perOut][k_h][k_w], n elements in all. A thread computes one. Grid (ceil(n/256)).
template <class T>
__device__ __forceinline__ void spread(const T *weights, const T *x, T *y, int64_t n, int channels, int perIn, int perOut, int groups, SPC_STRIDES, const Epilogue<T> &e) {
  int64_t at = int64_t(blockIdx.x) * FlatThreads + threadIdx.x;
  if (at >= n)
    return;
  int column = int(at % out_w), row = int(at / out_w % out_h), channel = int(at / out_w / out_h % channels), taps = k_h * k_w, group = channel / perOut;
  int64_t image = at / out_w / out_h / channels;
  float sum = 0;
  for (int i = 0; i < k_h; i++) {
    int r = row + pad_h - i * dilation_h;
    if (r < 0 || r % stride_h != 0 || r / stride_h >= in_h)
      continue;
    for (int j = 0; j < k_w; j++) {
      int s = column + pad_w - j * dilation_w;
      if (s < 0 || s % stride_w != 0 || s / stride_w >= in_w)
        continue;
      const T *pixel = x + ((image * groups + group) * perIn * in_h + r / stride_h) * in_w + s / stride_w;
      const T *weight = weights + (int64_t(group) * perIn * perOut + channel % perOut) * taps + i * k_w + j;
      for (int c = 0; c < perIn; c++)
        sum += number(pixel[int64_t(c) * in_h * in_w]) * number(weight[int64_t(c) * perOut * taps]);
    }
  }
  put(y[at], e.finish(sum, channel, at));
}

// rotate turns pairs of the first 2*half of depth elements of heads, x[batch][heads][tokens][depth],
// or with the tokens before the heads where packed is set. cosines and sines [positions][half] are
// those of the positions that ids[batch][tokens] lists; without, of the tokens, or of the tokens of each
// sample where each is set. n elements in all. Grid (ceil(n/256)).
template <class T>
__device__ __forceinline__ void rotate(const T *x, const T *cosines, const T *sines, const int64_t *ids, T *y, int64_t n, int heads, int tokens, int depth, int half,
                                       int packed, int interleaved, int each) {
  int64_t i = int64_t(blockIdx.x) * FlatThreads + threadIdx.x;
  if (i >= n)
    return;
  int d = int(i % depth);
  int64_t row = i / depth, token = packed ? row / heads % tokens : row % tokens, sample = row / heads / tokens;
  if (d >= 2 * half) {
    y[i] = x[i];
    return;
  }
  int64_t at = ids ? ids[sample * tokens + token] : each ? sample * tokens + token : token;
  int pair = interleaved ? d / 2 : d % half, step = interleaved ? 1 : half;
  bool second = interleaved ? d % 2 == 1 : d >= half;
  float c = number(cosines[at * half + pair]), s = number(sines[at * half + pair]), v = number(x[i]), other = number(x[second ? i - step : i + step]);
  put(y[i], second ? s * other + c * v : c * v - s * other);
}

} // namespace spc

#define SAMPLE(T) \
  SPC_KERNEL(T##_resample, 256, \
             (const spc::T *x, spc::T *y, int64_t n, int height, int heights, int middle, int width, int widths, int inner, const int *rows, const float *row_weights, \
              int row_taps, const int *columns, const float *column_weights, int column_taps), \
             spc::resample(x, y, n, height, heights, middle, width, widths, inner, rows, row_weights, row_taps, columns, column_weights, column_taps)) \
  SPC_KERNEL(T##_conv_transpose, 256, \
             (const spc::T *weights, const spc::T *x, spc::T *y, int64_t n, int channels, int per_in, int per_out, int groups, SPC_STRIDES, SPC_EPILOGUE), \
             spc::spread(weights, x, y, n, channels, per_in, per_out, groups, in_h, in_w, out_h, out_w, k_h, k_w, stride_h, stride_w, dilation_h, dilation_w, pad_h, \
                         pad_w, spc::Epilogue<spc::T>(SPC_EPILOGUE_ARGS))) \
  SPC_KERNEL(T##_rotate, 256, \
             (const spc::T *x, const spc::T *cosines, const spc::T *sines, const int64_t *ids, spc::T *y, int64_t n, int heads, int tokens, int depth, int half, \
              int packed, int interleaved, int each), \
             spc::rotate(x, cosines, sines, ids, y, n, heads, tokens, depth, half, packed, interleaved, each))
SAMPLE(f32)
SAMPLE(f16)
SAMPLE(bf16)
