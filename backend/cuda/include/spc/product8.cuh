// product8.cuh is the products of 8-bit integers on tensor cores for any source of W, Y = W X of a
// weight of i8 and activations of u8: both come through slabs of shared memory, filled while others
// are multiplied.
#pragma once

#include "spc/mma8.cuh"
#include "spc/product.cuh"

namespace spc {

// Types of residuals and results.
enum Type { SPC_TYPES };

// SPC_OPERANDS8 is SPC_OPERANDS, where X is u8, x_zero outside of images, and Y has a type of its own.
#define SPC_OPERANDS8 \
  const uint8_t *x, void *y, int M, int K, int N, int64_t x_row, int64_t x_column, int64_t x_batch, int64_t y_row, int64_t y_column, int64_t y_batch, \
      const void *patches, int x_zero
#define SPC_OPERANDS8_ARGS x, y, M, K, N, x_row, x_column, x_batch, y_row, y_column, y_batch, patches, x_zero

// Operands8 is those parameters. Of X, unless it is patches, and of Y either rows or columns are
// neighbours.
struct Operands8 {
  const uint8_t *x;
  void *y;
  int M, K, N;
  int64_t xRow, xColumn, xBatch, yRow, yColumn, yBatch;
  const Patches *patches;
  int zero;
  __device__ Operands8(SPC_OPERANDS8)
      : x(x), y(y), M(M), K(K), N(N), xRow(x_row), xColumn(x_column), xBatch(x_batch), yRow(y_row), yColumn(y_column), yBatch(y_batch),
        patches(static_cast<const Patches *>(patches)), zero(x_zero) {}
};

// SPC_EPILOGUE8 is the parameters by which a kernel finishes the sum in row m of W X:
//
//	v = act((sum + shift[m]) * scale[m] + bias[m] + residual)
//
// with each operation rounded to f32. A residual of u8 stands for r_scale * (r - r_zero), a
// result of u8 for y_scale * (y - y_zero); bias and residual may be missing.
#define SPC_EPILOGUE8 \
  const int32_t *shift, const float *scale, const float *bias, const void *residual, int r_type, float r_scale, int r_zero, int y_type, float y_scale, int y_zero, int act, \
      float act_a, float act_b
#define SPC_EPILOGUE8_ARGS shift, scale, bias, residual, r_type, r_scale, r_zero, y_type, y_scale, y_zero, act, act_a, act_b

// Epilogue8 is those parameters.
struct Epilogue8 {
  const int32_t *shift;
  const float *scale, *bias;
  const void *residual;
  int rType;
  float rScale;
  int rZero, yType;
  float yScale;
  int yZero, act;
  float a, b;
  __device__ Epilogue8(SPC_EPILOGUE8)
      : shift(shift), scale(scale), bias(bias), residual(residual), rType(r_type), rScale(r_scale), rZero(r_zero), yType(y_type), yScale(y_scale), yZero(y_zero), act(act),
        a(act_a), b(act_b) {}

  // load reads 4 elements of type T from place at on, of which so many are there; whole says
  // that all are and can be loaded at once.
  template <class T> __device__ __forceinline__ static void load(float (&r)[4], const void *from, int64_t at, int inside, bool whole) {
    const T *p = static_cast<const T *>(from) + at;
    Vec<T, 4> v = {};
    if (whole)
      v = *reinterpret_cast<const Vec<T, 4> *>(p);
    else
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (i < inside)
          v.at[i] = p[i];
#pragma unroll
    for (int i = 0; i < 4; i++)
      r[i] = number(v.at[i]);
  }

  // residuals reads those of 4 neighbours.
  __device__ __forceinline__ void residuals(float (&r)[4], int64_t at, int inside, bool whole) const {
    switch (rType) {
    case U8:
      load<u8>(r, residual, at, inside, whole);
#pragma unroll
      for (int i = 0; i < 4; i++)
        r[i] = times(rScale, r[i] - float(rZero));
      return;
    case F32: return load<f32>(r, residual, at, inside, whole);
    case F16: return load<f16>(r, residual, at, inside, whole);
    case BF16: return load<bf16>(r, residual, at, inside, whole);
    }
  }

  __device__ __forceinline__ void put(u8 &to, float v) const { to.bits = quantized(v, yScale, yZero); }
  template <class T> __device__ __forceinline__ void put(T &to, float v) const { spc::put(to, v); }

  // store finishes 4 sums that are neighbours in Y, of type T, and of which so many are there;
  // down says that their rows are m and the next three, else all are of row m.
  template <class T> __device__ __forceinline__ void store(void *y, const int32_t (&sum)[4], int m, bool down, int64_t at, int inside) const {
    bool whole = inside == 4 && at % 4 == 0;
    float r[4] = {0, 0, 0, 0};
    if (residual)
      residuals(r, at, inside, whole);
    Vec<T, 4> v = {};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (i >= inside)
        break;
      int row = down ? m + i : m;
      float f = times(float(sum[i] + shift[row]), scale[row]);
      if (bias)
        f = plus(f, bias[row]);
      if (residual)
        f = plus(f, r[i]);
      put(v.at[i], act == None ? f : activate(act, a, b, f));
    }
    T *to = static_cast<T *>(y) + at;
    if (whole)
      *reinterpret_cast<Vec<T, 4> *>(to) = v;
    else
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (i < inside)
          to[i] = v.at[i];
  }
};

// Slab8 is Depth rows of Columns columns of X in shared memory, as a Slab whose elements are pairs of
// bytes, in units of 16 neighbours. Where rows are neighbours, which is down, a line is a column, and a
// fragment's registers are what ldmatrix loads. Else a line is a row: ldmatrix turns around pairs of
// two columns, and registers choose the bytes of either. Then column 2*g+h of 16 is column g of
// fragment h, and rows lie so that the pairs of a register are neighbours.
template <int Depth, int Columns> union Slab8 {
  static constexpr int Wide = Columns < 16 ? 16 : Columns; // a line's bytes
  Slab<Depth / 2, Columns> columns;
  Slab<Depth, Wide / 2> rows;

  // unit is number unit of a line.
  template <bool Down> __device__ __forceinline__ uint4 *unit(int line, int unit) {
    if constexpr (Down)
      return columns.units + columns.template place<true>(line, unit);
    else
      return rows.units + rows.template place<false>(line / 16 * 16 + line / 2 % 2 * 8 + line / 4 % 4 * 2 + line % 2, unit);
  }

  // column is where column n of a row of sums is, of C fragments.
  template <int C> __device__ static __forceinline__ int column(bool down, int n) { return down || C == 1 ? n : n / 16 * 16 + n % 2 * 8 + n % 16 / 2; }

  // fragments loads b for 32*P rows from k on and 8*C columns from n on, as mma8 and mma8Sparse take them.
  template <bool Down, int C, int P> __device__ __forceinline__ void fragments(uint32_t (&b)[C][2 * P], int k, int n) const {
    if constexpr (Down) {
      columns.template fragments<true, C, P>(b, k / 2, n);
    } else {
      constexpr int Pairs = C > 1 ? C / 2 : 1;
      uint32_t pair[Pairs][4 * P];
      rows.template fragments<false, Pairs, 2 * P>(pair, k, n / 2);
#pragma unroll
      for (int c = 0; c < Pairs; c++)
#pragma unroll
        for (int r = 0; r < 2 * P; r++) {
          uint32_t even = choose(pair[c][2 * r], pair[c][2 * r + 1], 0x6420), odd = choose(pair[c][2 * r], pair[c][2 * r + 1], 0x7531);
          if constexpr (C > 1) {
            b[2 * c][r] = even;
            b[2 * c + 1][r] = odd;
          } else { // the lanes of 8 columns have all of them
            int lane = threadIdx.x % 32, from = lane / 8 * 4 + lane % 4;
            even = __shfl_sync(~0u, even, from);
            odd = __shfl_sync(~0u, odd, from);
            b[c][r] = lane / 4 % 2 ? odd : even;
          }
        }
    }
  }
};

// Tile8 is a Tile whose Depth rows of X go with so many columns of W through Stages pairs of slabs.
template <int MW, int NW, int KW, int R, int C, int Depth, int Stages> struct Tile8 : Tile<MW, NW, KW, R, C, Depth, Stages> {
  using Base = Tile<MW, NW, KW, R, C, Depth, Stages>;
  using X = Slab8<Depth, Base::Columns>;
  template <class W> union Memory {
    struct {
      X x[Stages];
      W w[Stages];
    } slabs;
    int32_t stages[MW * NW][16][8 * C + 1];
    int32_t partial[KW > 1 ? KW - 1 : 1][KW > 1 ? MW * NW : 1][R * C * 4][32];
    __device__ Memory() {}
  };
};

// Ways in which X comes to shared memory: by copies that go on meanwhile, of columns or of rows of
// it, and by bytes through registers, of odd addresses and of the pixels that a convolution reads.
enum Way { ByColumns, ByRows, ByBytes };

// Feed8 fills slabs with X.
template <class S> struct Feed8 {
  using Slab = typename S::X;
  const Operands8 &o;
  const uint8_t *x; // the block's matrix
  int n0, piece;    // the first column, and how many neighbours can be copied at once
  Way way;
  // The column that the thread reads byte by byte, where its pixel is in the image, and that one's size.
  int n, top, left, inH, inW;

  __device__ __forceinline__ Feed8(const Operands8 &o) : o(o), x(o.x + blockIdx.z * o.xBatch), n0(blockIdx.x * S::Columns), way(o.xRow == 1 ? ByColumns : ByRows) {
    int64_t far = (way == ByColumns ? o.xColumn : o.xRow) | o.xBatch; // of lines, and of matrices
    auto fits = [&](int n) { return far % n == 0 && reinterpret_cast<uintptr_t>(o.x) % n == 0; };
    piece = fits(16) && (way == ByColumns || S::Columns >= 16) ? 16 : fits(8) ? 8 : 4;
    if (o.patches || !fits(4))
      way = ByBytes;
    n = threadIdx.x % S::Columns;
    top = left = inH = inW = 0;
    if (o.patches) {
      inH = o.patches->inH;
      inW = o.patches->inW;
      int row = (n0 + n) / o.patches->outW;
      top = row * o.patches->strideH;
      left = (n0 + n - row * o.patches->outW) * o.patches->strideW;
    }
  }

  // copy brings the slab of the rows from k0, a multiple of 32, on, with zeros outside of X.
  template <bool Down> __device__ __forceinline__ void copy(Slab &slab, int k0) const {
    constexpr int Across = (Down ? S::Depth : Slab::Wide) / 16, Units = Across * (Down ? S::Columns : S::Depth);
    constexpr int Bytes = !Down && S::Columns < 16 ? S::Columns : 16;
#pragma unroll
    for (int i = 0; i < (Units + S::Threads - 1) / S::Threads; i++) {
      int number = i * S::Threads + threadIdx.x, line = number / Across, unit = number % Across;
      if (Units % S::Threads != 0 && number >= Units)
        break;
      int k = k0 + (Down ? unit * 16 : line), n = n0 + (Down ? line : unit * 16);
      int inside = k < o.K && n < o.N ? Down ? o.K - k : o.N - n : 0; // of X
      const uint8_t *from = inside > 0 ? x + k * o.xRow + n * o.xColumn : x;
      uint8_t *to = reinterpret_cast<uint8_t *>(slab.template unit<Down>(line, unit));
      if (piece == 16) {
        copy_async<16>(to, from, inside < 16 ? inside : 16);
        continue;
      }
#pragma unroll 1
      for (int j = 0; j < Bytes; j += piece) {
        int valid = inside - j < 0 ? 0 : inside - j < piece ? inside - j : piece;
        const uint8_t *at = valid > 0 ? from + j : x;
        if (piece == 8)
          copy_async<8>(to + j, at, valid);
        else
          copy_async<4>(to + j, at, valid);
      }
    }
  }

  // Byte by byte a thread brings Each units of a slab, all of its column.
  static constexpr int Across = S::Threads / S::Columns, Each = S::Depth / 16 / Across;
  static_assert(Across * S::Columns == S::Threads && Each * Across * 16 == S::Depth, "threads share whole slabs");
  __device__ static __forceinline__ int unit(int i) { return threadIdx.x / S::Columns + i * Across; }

  // copyTaps brings those of the rows from k0 on, zeros where there are none.
  __device__ __forceinline__ void copyTaps(Tap *to, int k0) const {
#pragma unroll 1
    for (int i = threadIdx.x; i < S::Depth; i += S::Threads) {
      bool inside = k0 + i < o.K;
      copy_async<8>(to + i, reinterpret_cast<const Tap *>(o.patches + 1) + (inside ? k0 + i : 0), inside ? 8 : 0);
    }
  }

  // read reads unit number i of the thread, of the slab of the rows from k0 on, whose taps are at taps.
  // W has zeros for the rows behind X, which may be anything.
  __device__ __forceinline__ void read(uint32_t (&bytes)[16], int i, int k0, const Tap *taps) const {
    if (o.patches) {
#pragma unroll
      for (int j = 0; j < 16; j++) {
        Tap tap = taps[unit(i) * 16 + j];
        int row = top + tap.y, column = left + tap.x;
        bytes[j] = o.zero;
        if (unsigned(row) < unsigned(inH) && unsigned(column) < unsigned(inW))
          bytes[j] = x[tap.plane + row * inW + column];
      }
    } else {
      int k = k0 + unit(i) * 16;
      const uint8_t *from = x + k * o.xRow + (n0 + n) * o.xColumn;
#pragma unroll
      for (int j = 0; j < 16; j++) {
        bytes[j] = 0;
        if (k + j < o.K && n0 + n < o.N)
          bytes[j] = from[j * o.xRow];
      }
    }
  }

  // write puts it into the slab.
  __device__ __forceinline__ void write(Slab &slab, const uint32_t (&bytes)[16], int i) const {
    uint32_t word[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
      word[j] = choose(choose(bytes[4 * j], bytes[4 * j + 1], 0x0040), choose(bytes[4 * j + 2], bytes[4 * j + 3], 0x0040), 0x5410);
    *slab.template unit<true>(n, unit(i)) = {word[0], word[1], word[2], word[3]};
  }
};

// Sums8 are a warp's sums, 16 R rows by 8 C columns.
template <int R, int C> struct Sums8 {
  int32_t d[R][C][4];

  // store finishes those that lie in Y, of which the first is element (m0,n0). They go through
  // stage, 16 rows at a time, so that neighbours write neighbours; place says where a column is there.
  template <class T, class F>
  __device__ __forceinline__ void store(const Operands8 &o, const Epilogue8 &e, int m0, int n0, int32_t (&stage)[16][8 * C + 1], F place) const {
    int lane = threadIdx.x % 32;
    bool down = o.yColumn != 1;
#pragma unroll
    for (int r = 0; r < R; r++) {
      lay_out(stage, d[r]);
      __syncwarp();
#pragma unroll 1
      for (int at = lane; at < 32 * C; at += 32) {
        int row = down ? at % 4 * 4 : at / (2 * C), column = down ? at / 4 : at % (2 * C) * 4;
        int m = m0 + 16 * r + row, n = n0 + column, left = down ? o.M - m : o.N - n;
        if (m < o.M && n < o.N) {
          int32_t sum[4];
#pragma unroll
          for (int i = 0; i < 4; i++)
            sum[i] = down ? stage[row + i][place(column)] : stage[row][place(column + i)];
          e.template store<T>(o.y, sum, m, down, m * o.yRow + n * o.yColumn + blockIdx.z * o.yBatch, left < 4 ? left : 4);
        }
      }
      __syncwarp();
    }
  }
};

// accumulate adds the products of all slabs. A move is what a warp multiplies while it reads bytes: a
// step, or a share of its columns, so that few registers hold bytes at a time.
template <class S, Way By, class Source, class Memory>
__device__ __forceinline__ void accumulate(Source &source, const Operands8 &o, const Feed8<S> &feed, Memory &memory, Sums8<S::R, S::C> &sums) {
  constexpr bool Bytes = By == ByBytes, Down = By != ByRows;
  constexpr int P = Source::P, Steps = S::Depth / S::KW / 32 / P, Ahead = S::Stages - 1;
  constexpr int Each = Feed8<S>::Each, Shares = !Bytes || Each <= Steps ? 1 : Each / Steps < S::C ? Each / Steps : S::C;
  constexpr int C = S::C / Shares, Moves = Steps * Shares, Units = (Each + Moves - 1) / Moves;
  static_assert(Steps * P * 32 * S::KW == S::Depth, "steps of all warps are a slab");
  auto &x = memory.slabs.x;
  auto &w = memory.slabs.w;
  // Bytes are written a slab ahead, so two slabs of X are enough, and the taps lie in the others.
  Tap *taps = reinterpret_cast<Tap *>(x + 2);
  static_assert(S::Stages * S::Depth * sizeof(Tap) <= (S::Stages - 2) * sizeof(x[0]), "taps fit");
  int count = source.count(), now = 0, next = 0; // the slabs that is multiplied, and that is brought
  for (int i = -Ahead - Bytes; i < count; i++) {
    copy_wait<Ahead - 1>();
    __syncthreads(); // this slab is there, and nobody reads the last one
    int ahead = i + Ahead;
    if (ahead >= 0 && ahead < count) {
      if (!Bytes)
        feed.template copy<Down>(x[next], source.row(ahead));
      source.begin(w[next], ahead);
      next = next + 1 == S::Stages ? 0 : next + 1;
    }
    if (Bytes && o.patches && ahead + 1 < count)
      feed.copyTaps(taps + (ahead + 1) % S::Stages * S::Depth, source.row(ahead + 1));
    copy_commit();
    bool fill = Bytes && i >= -1 && i + 1 < count;
    int k0 = fill ? source.row(i + 1) : 0;
    typename Source::Part part;
#pragma unroll
    for (int move = 0; move < Moves; move++) {
      uint32_t bytes[Units][16];
      if (fill)
#pragma unroll
        for (int j = 0; j < Units; j++)
          if (move * Units + j < Each)
            feed.read(bytes[j], move * Units + j, k0, taps + (i + 1) % S::Stages * S::Depth);
      if (i >= 0) {
        int step = S::kw() * Steps + move / Shares, c = move % Shares * C;
        if (c == 0)
          source.load(part, w[now], step);
        uint32_t b[C][2 * P];
        x[Bytes ? i % 2 : now].template fragments<Down, C, P>(b, step * 32 * P, (S::nw() * S::C + c) * 8);
#pragma unroll
        for (int j = 0; j < C; j++)
#pragma unroll
          for (int r = 0; r < S::R; r++)
            source.multiply(sums.d[r][c + j], part, r, b[j]);
      }
      if (fill)
#pragma unroll
        for (int j = 0; j < Units; j++)
          if (move * Units + j < Each)
            feed.write(x[(i + 1) % 2], bytes[j], move * Units + j);
    }
    if (i >= 0)
      now = now + 1 == S::Stages ? 0 : now + 1;
  }
  __syncthreads(); // nobody reads slabs
}

// tensor_product8 computes a Tile8 of Y for a source of W: count() slabs of X, of which slab i
// begins at row(i). begin(slab, i) begins to bring slab i of W, one after the other. A warp multiplies its share of it
// in steps of 32*P rows of X: load(part, slab, s) reads R tiles for step s of all, and multiply(d, part, r,
// b) adds the product of tile r with a fragment. Grid (ceil(N/Columns), ceil(M/Rows), batch).
template <class S, class Source> __device__ __forceinline__ void tensor_product8(Source source, const Operands8 &o, const Epilogue8 &e) {
  SPC_SHARED(typename S::template Memory<typename Source::Slab>, memory);
  Feed8<S> feed(o);
  Sums8<S::R, S::C> sums = {};
  switch (feed.way) {
  case ByColumns: accumulate<S, ByColumns>(source, o, feed, memory, sums); break;
  case ByRows: accumulate<S, ByRows>(source, o, feed, memory, sums); break;
  case ByBytes: accumulate<S, ByBytes>(source, o, feed, memory, sums); break;
  }
  int warp = S::mw() + S::MW * S::nw();
  if (!add_up<S>(memory.partial, sums.d, warp))
    return;
  int m0 = blockIdx.y * S::Rows + S::mw() * 16 * S::R, n0 = feed.n0 + S::nw() * 8 * S::C;
  auto &stage = memory.stages[warp];
  auto place = [&](int n) { return S::X::template column<S::C>(feed.way != ByRows, n); };
  switch (e.yType) {
  case U8: return sums.template store<u8>(o, e, m0, n0, stage, place);
  case F32: return sums.template store<f32>(o, e, m0, n0, stage, place);
  case F16: return sums.template store<f16>(o, e, m0, n0, stage, place);
  case BF16: return sums.template store<bf16>(o, e, m0, n0, stage, place);
  }
}

// Grid8 is how sources go through all tiles of W, of 16 rows by 32*P columns, of which those of 16 rows are
// one after another, and so many are a row.
template <class S, int P_> struct Grid8 {
  static constexpr int P = P_, Down = S::Rows / 16, Across = S::Depth / 32 / P; // of them in a slab
  int tiles;

  __device__ __forceinline__ int count() const { return (tiles + Across - 1) / Across; }
  __device__ __forceinline__ int row(int i) const { return i * S::Depth; }

  // each calls f(down, across, lane, at, inside) for the thread's lanes of the tiles of slab i, of which
  // that in row down and column across has its lane at number at of all, or of any where it is not inside.
  template <class F> __device__ __forceinline__ void each(int i, F f) const {
    constexpr int Lanes = Down * Across * 32;
#pragma unroll
    for (int j = 0; j < (Lanes + S::Threads - 1) / S::Threads; j++) {
      int number = j * S::Threads + threadIdx.x, lane = number % 32, across = number / 32 % Across, down = number / 32 / Across;
      if (Lanes % S::Threads != 0 && number >= Lanes)
        break;
      bool inside = i * Across + across < tiles;
      int64_t at = ((int64_t(blockIdx.y) * Down + down) * tiles + (inside ? i * Across + across : 0)) * 32 + lane;
      f(down, across, lane, at, inside);
    }
  }
};

// Registers8 is a lane's registers of R tiles.
template <class S> struct Registers8 {
  uint32_t a[S::R][4];
  __device__ __forceinline__ void set(int r, uint4 v) {
    a[r][0] = v.x;
    a[r][1] = v.y;
    a[r][2] = v.z;
    a[r][3] = v.w;
  }
};

} // namespace spc

// SPC_TILES8 is the tiles that kernels of a format come in, backend.GPUTiles8.
#define SPC_TILES8(KERNEL) \
  KERNEL(128x128x64, 2, 2, 1, 4, 8, 64, 3) \
  KERNEL(64x64x64, 2, 2, 1, 2, 4, 64, 4) \
  KERNEL(32x32x256k4, 1, 1, 4, 2, 4, 256, 3) \
  KERNEL(16x8x256k4, 1, 1, 4, 1, 1, 256, 4)
