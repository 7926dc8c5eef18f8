// product.cuh is the products of tensor cores for any source of W: X comes through slabs of
// shared memory, filled while others are multiplied.
#pragma once

#include "spc/mma.cuh"
#include "spc/wgmma.cuh"

namespace spc {

// Slab is Depth rows of Columns columns of X in shared memory, in units of 8 neighbours, as they
// lie in memory: where columns are neighbours, a line of units is a row, and where rows are, which
// is down, it is a column. Of longer lines the first 64 elements of each come first. Units of a line
// change places from line to line, so that 8 lines of a matrix of ldmatrix meet different banks;
// lines of 64 elements lie as the swizzle of 128 bytes of the PTX ISA has them ("Asynchronous warpgroup level
// matrix shared memory layout").
template <int Depth, int Columns> struct Slab {
  static constexpr int Units = Depth * Columns / 8;
  alignas(1024) uint4 units[Units];

  // place is that of unit number unit of a line.
  template <bool Down> __device__ static __forceinline__ int place(int line, int unit) {
    constexpr int Inner = Down ? Depth : Columns, Lines = Down ? Columns : Depth, Width = Inner < 64 ? Inner / 8 : 8;
    return (unit / Width * Lines + line) * Width + (unit % Width ^ line * Width / 8 % Width);
  }

  // fragments loads b for 16*P rows from k on and 8*C columns from n on, as mma and mmaSparse take them.
  template <bool Down, int C, int P> __device__ __forceinline__ void fragments(uint32_t (&b)[C][2 * P], int k, int n) const {
    constexpr int Each = C * P > 1 ? 4 : 2, Lines = Each / 2; // matrices, of which two are below each other
    int lane = threadIdx.x % 32, matrix = lane / 8 % Each;
#pragma unroll
    for (int i = 0; i < C * P; i += Lines) {
      int at = i + matrix / 2, row = k + at % P * 16 + matrix % 2 * 8, column = n + at / P * 8;
      const uint4 *from = units + (Down ? place<true>(column + lane % 8, row / 8) : place<false>(row + lane % 8, column / 8));
      uint32_t r[Each];
      ldmatrix<!Down>(r, from);
#pragma unroll
      for (int j = 0; j < Each; j++)
        b[(i + j / 2) / P][(i + j / 2) % P * 2 + j % 2] = r[j];
    }
  }
};

// Feed fills slabs with X, by Threads threads of a block, each of which brings the same units of
// every slab: by copies that go on meanwhile, or, where neighbours are at odd addresses or are the
// pixels that a convolution reads from channels, by registers, from begin to end.
template <class T, int Depth, int Columns, int Threads> struct Feed {
  using Slab = spc::Slab<Depth, Columns>;
  static constexpr int Each = (Slab::Units + Threads - 1) / Threads;
  static constexpr int Outside = 0x7fff; // a row that no image has
  const Operands<T> &o;
  const T *x; // the block's matrix
  int n0, thread; // the first column, and which of the threads this is
  int piece; // how many neighbours can be copied at once, 0 where channels come last
  bool down;
  // Elements apart, since to put them together is to wait for them; or, where channels come last, of each line where the
  // first tap of its pixel lies in X, and its row and column in halves.
  uint32_t held[Each][8];

  __device__ __forceinline__ Feed(const Operands<T> &o, const T *x, int n0, int thread = threadIdx.x) : o(o), x(x), n0(n0), thread(thread), down(o.down()) {
    int64_t far = (down ? o.xColumn : o.xRow) | o.xBatch; // of lines, and of matrices
    auto fits = [&](int n) { return far % n == 0 && reinterpret_cast<uintptr_t>(o.x) % (n * sizeof(T)) == 0; };
    piece = o.last() ? 0 : o.patches || (!down && o.xColumn != 1) ? 1 : fits(8) ? 8 : fits(4) ? 4 : fits(2) ? 2 : 1;
    if (piece == 0)
      each<true>([&](int i, int line, int) {
        const Patches &p = *o.patches;
        int n = n0 + line < o.N ? n0 + line : o.N - 1, image = n / p.pixels, pixel = n - image * p.pixels, row = pixel / p.outW;
        int y = row * p.strideH, x = (pixel - row * p.outW) * p.strideW;
        held[i][0] = image * p.image + (y * p.inW + x) * p.channels;
        held[i][1] = n0 + line < o.N ? y | x << 16 : Outside;
      });
  }

  // each calls f(i, line, unit) for the units of this thread.
  template <bool Down, class F> __device__ __forceinline__ void each(F f, int first = 0, int count = Each) const {
    constexpr int Width = (Down ? Depth : Columns) / 8;
#pragma unroll
    for (int i = 0; i < count; i++) {
      int unit = (first + i) * Threads + thread;
      if (Slab::Units % Threads == 0 || unit < Slab::Units)
        f(i, unit / Width, unit % Width);
    }
  }

  // odd reads those of 8 elements that lie in X, some apart, zeros in place of the others.
  __device__ static __forceinline__ void odd(uint32_t (&to)[8], const T *from, int64_t step, int inside) {
#pragma unroll
    for (int i = 0; i < 8; i++)
      to[i] = i < inside ? from[i * step].bits : 0;
  }

  // pixels reads what row k of X is for 8 output pixels from n on.
  __device__ __forceinline__ void pixels(uint32_t (&to)[8], int k, int n) const {
    const Patches &p = *o.patches;
    Tap tap = {0, 0, 0};
    if (k < o.K)
      tap = reinterpret_cast<const Tap *>(o.patches + 1)[k];
    int row = n / p.outW, column = n - row * p.outW;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      int y = row * p.strideH + tap.y, x = column * p.strideW + tap.x;
      bool inside = k < o.K && n + i < o.N && unsigned(y) < unsigned(p.inH) && unsigned(x) < unsigned(p.inW);
      to[i] = inside ? this->x[tap.plane + y * p.inW + x].bits : 0;
      if (++column == p.outW) {
        column = 0;
        row++;
      }
    }
  }

  // channels begins to copy the slab of the rows from k0 on, where channels come last: a thread's units are of one tap.
  __device__ __forceinline__ void channels(Slab &slab, int k0) const {
    static_assert(Threads % (Depth / 8) == 0, "a thread's units have the same rows");
    const Patches &p = *o.patches;
    int k = k0 + thread % (Depth / 8) * 8;
    Tap tap = {0, Outside, 0};
    if (k < o.K)
      tap = reinterpret_cast<const Tap *>(o.patches + 1)[k / 8];
    int far = (tap.y * p.inW + tap.x) * p.channels + tap.plane;
    each<true>([&](int i, int line, int unit) {
      int y = int(held[i][1] & 0xffff) + tap.y, x = int(held[i][1] >> 16) + tap.x;
      bool inside = unsigned(y) < unsigned(p.inH) && unsigned(x) < unsigned(p.inW);
      copy_async<16>(slab.units + Slab::template place<true>(line, unit), inside ? this->x + int(held[i][0] + far) : this->x, inside ? 16 : 0);
    });
  }

  // read begins to copy a unit of the slab of the rows from k0 on, or reads it to registers.
  template <bool Down> __device__ __forceinline__ void read(uint32_t (&to)[8], Slab &slab, int k0, int line, int unit) const {
    int k = k0 + (Down ? unit * 8 : line), n = n0 + (Down ? line : unit * 8);
    if (!Down && o.patches) {
      pixels(to, k, n);
      return;
    }
    int inside = k < o.K && n < o.N ? Down ? o.K - k : o.N - n : 0; // of X
    const T *from = inside > 0 ? x + k * o.xRow + n * o.xColumn : x;
    if (piece == 1) {
      odd(to, from, Down ? o.xRow : o.xColumn, inside);
      return;
    }
    T *there = reinterpret_cast<T *>(slab.units + Slab::template place<Down>(line, unit));
    inside = inside < 8 ? inside : 8;
    if (piece == 8) {
      copy_async<16>(there, from, 2 * inside);
      return;
    }
#pragma unroll 1
    for (int j = 0; j < 8; j += piece) {
      int valid = inside - j < 0 ? 0 : inside - j < piece ? inside - j : piece;
      const T *at = valid > 0 ? from + j : x;
      if (piece == 4)
        copy_async<8>(there + j, at, 2 * valid);
      else
        copy_async<4>(there + j, at, 2 * valid);
    }
  }
  // write stores what was read of a unit.
  template <bool Down> __device__ __forceinline__ void write(const uint32_t (&h)[8], Slab &slab, int line, int unit) const {
    slab.units[Slab::template place<Down>(line, unit)] = {h[0] | h[1] << 16, h[2] | h[3] << 16, h[4] | h[5] << 16, h[6] | h[7] << 16};
  }

  // begin begins to bring the slab of the rows from k0, a multiple of 8, on, and end stores what is in registers of it.
  template <bool Down> __device__ __forceinline__ void begin(Slab &slab, int k0) {
    each<Down>([&](int i, int line, int unit) { read<Down>(held[i], slab, k0, line, unit); });
  }
  template <bool Down> __device__ __forceinline__ void end(Slab &slab) const {
    if (piece == 1)
      each<Down>([&](int i, int line, int unit) { write<Down>(held[i], slab, line, unit); });
  }
  __device__ __forceinline__ void begin(Slab &slab, int k0) {
    if (piece == 0)
      channels(slab, k0);
    else if (down)
      begin<true>(slab, k0);
    else
      begin<false>(slab, k0);
  }
  __device__ __forceinline__ void end(Slab &slab) const {
    if (down)
      end<true>(slab);
    else
      end<false>(slab);
  }

  // bring does both, for few units at a time where they go by registers.
  template <bool Down> __device__ __forceinline__ void bring(Slab &slab, int k0) const {
    constexpr int Few = 2;
    static_assert(Each % Few == 0, "a thread has some units");
#pragma unroll 1
    for (int first = 0; first < Each; first += Few) {
      uint32_t few[Few][8];
      each<Down>([&](int i, int line, int unit) { read<Down>(few[i], slab, k0, line, unit); }, first, Few);
      if (piece == 1)
        each<Down>([&](int i, int line, int unit) { write<Down>(few[i], slab, line, unit); }, first, Few);
    }
  }
  // whole is bring where units are copied at once: a thread's lie alike in their lines, so little changes from
  // one to the next.
  template <bool Down> __device__ __forceinline__ void whole(Slab &slab, int k0) const {
    constexpr int Width = (Down ? Depth : Columns) / 8, Step = Threads / Width, Ways = Step < 8 ? 8 / Step : 1;
    static_assert(Threads % Width == 0 && Step * Ways % 8 == 0, "every so many units of a thread lie alike");
    int line = thread / Width, unit = thread % Width;
    int k = k0 + (Down ? unit * 8 : line), n = n0 + (Down ? line : unit * 8);
    int inside = Down ? o.K - k : o.N - n; // of a line
    inside = inside < 0 ? 0 : inside < 8 ? inside : 8;
    int lines = Down ? o.N - n : o.K - k;
    const T *from = x + k * o.xRow + n * o.xColumn;
    uint4 *to[Ways];
#pragma unroll
    for (int i = 0; i < Ways; i++)
      to[i] = slab.units + Slab::template place<Down>(line + i * Step, unit);
#pragma unroll
    for (int i = 0; i < Each; i++) {
      bool is = inside > 0 && i * Step < lines;
      copy_async<16>(to[i % Ways] + i / Ways * Ways * Step * 8, is ? from : x, is ? 2 * inside : 0);
      from += Step * (Down ? o.xColumn : o.xRow);
    }
  }
};

// Sums are a warp's elements of Y, 16 R rows by 8 C columns.
template <int R, int C> struct Sums {
  float d[R][C][4];
  __device__ __forceinline__ Sums() {
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int c = 0; c < C; c++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          d[r][c][i] = 0;
  }
  // store finishes those that lie in Y, of which the first is element (m0,n0). They go through
  // stage, 16 rows and as many columns as it has at a time, so that neighbours write neighbours.
  template <class T, int Wide> __device__ __forceinline__ void store(const Operands<T> &o, const Epilogue<T> &e, int m0, int n0, float (&stage)[16][Wide]) const {
    constexpr int Columns = Wide - 1;
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int c = 0; c < C; c += Columns / 8) {
        lay_out(stage, d[r] + c);
        __syncwarp();
#pragma unroll 1
        for (int at = lane; at < 16 * Columns; at += 32) {
          int row = o.yColumn == 1 ? at / Columns : at % 16, column = o.yColumn == 1 ? at % Columns : at / 16;
          int m = m0 + 16 * r + row, n = n0 + 8 * c + column;
          if (m < o.M && n < o.N)
            o.store(e, stage[row][column], m, n);
        }
        __syncwarp();
      }
  }
};

// Warps is the shape of what a block of threads computes, by MW x NW x KW warps: MW below each
// other have 16 R rows each, NW side by side 8 C columns, and KW share the rows of X, of which
// Depth at a time go through Stages slabs.
template <int MW_, int NW_, int KW_, int R_, int C_, int Depth_, int Stages_> struct Warps {
  static constexpr int MW = MW_, NW = NW_, KW = KW_, R = R_, C = C_, Depth = Depth_, Stages = Stages_;
  static constexpr int Rows = 16 * R * MW, Columns = 8 * C * NW, Threads = 32 * MW * NW * KW;
  // Where this thread's warp is.
  __device__ static __forceinline__ int mw() { return threadIdx.x / 32 % MW; }
  __device__ static __forceinline__ int nw() { return threadIdx.x / 32 / MW % NW; }
  __device__ static __forceinline__ int kw() { return threadIdx.x / 32 / (MW * NW); }
};

// Tile is the Warps of floats, and the shared memory of a block.
template <int MW, int NW, int KW, int R, int C, int Depth, int Stages> struct Tile : Warps<MW, NW, KW, R, C, Depth, Stages> {
  static constexpr bool Group = false, Only = false;
  static constexpr int Blocks = 1; // on a multiprocessor, at least
  union Memory {
    Slab<Depth, 8 * C * NW> slabs[Stages];
    float stages[MW * NW][16][8 * C + 1];
    float partial[KW > 1 ? KW - 1 : 1][KW > 1 ? MW * NW : 1][R * C * 4][32];
    __device__ Memory() {}
  };
};

// Groups are warps that multiply by wgmma, four together, and four others that bring slabs of X and of W for them.
// backend.GPUTile knows the memory that this needs.
template <int MW, int NW, int R, int C, int Stages, int Blocks_> struct Groups : Warps<MW, NW, 1, R, C, 64, Stages> {
  static constexpr bool Group = SPC_WARPGROUPS, Only = true; // there is no other way
  static constexpr int Takers = 32 * MW * NW, Givers = 128, Threads = Takers + Givers, Blocks = Blocks_;
  // The registers of their threads, of the 128 or 168 that each begins with.
  static constexpr int Take = Blocks == 2 ? 192 : 208, Give = Blocks == 2 ? 64 : 88;
};

// GroupTile is a Tile that is Groups where there is wgmma, if it has eight warps, rows for four times 16 and columns for the
// lines of wgmma.
template <int MW, int NW, int KW, int R, int C, int Depth, int Stages,
          bool Group = SPC_WARPGROUPS && MW * NW == 8 && KW == 1 && R * MW % 4 == 0 && 8 * C * NW % 64 == 0 && Depth == 64>
struct GroupTile : Tile<MW, NW, KW, R, C, Depth, Stages> {};
template <int MW, int NW, int KW, int R, int C, int Depth, int Stages>
struct GroupTile<MW, NW, KW, R, C, Depth, Stages, true> : Groups<4, 1, R * MW / 4, C * NW, Stages, 2> {};

// SPC_TILES are the tiles of kernels whose rows of tiles any number of warps may share, as
// backend.GPUTiles lists them: make(T, name, Tile's parameters) for each.
#define SPC_TILES(make, T) \
  make(T, 128x128x64, 4, 2, 1, 2, 8, 64, 3) \
  make(T, 128x64x64, 4, 2, 1, 2, 4, 64, 3) \
  make(T, 32x32x128k4, 1, 1, 4, 2, 4, 128, 3) \
  make(T, 16x8x256k4, 1, 1, 4, 1, 1, 256, 4)
// What backend.GPUGroups is.
#define SPC_GROUPS spc::Groups<8, 1, 2, 16, 4, 1>

// Is is a condition that is a type.
template <bool V> struct Is { static constexpr bool value = V; };

// add_up adds the sums of the warps that share a Tile's rows of X to those of the first of them, of which
// it returns true.
template <class S, class Partial, class D> __device__ __forceinline__ bool add_up(Partial &partial, D (&d)[S::R][S::C][4], int warp) {
  if (S::KW > 1) {
    int lane = threadIdx.x % 32;
    if (S::kw() > 0)
#pragma unroll
      for (int i = 0; i < S::R * S::C * 4; i++)
        partial[S::kw() - 1][warp][i][lane] = d[i / (S::C * 4)][i / 4 % S::C][i % 4];
    __syncthreads();
    if (S::kw() == 0)
#pragma unroll
      for (int other = 0; other + 1 < S::KW; other++)
#pragma unroll
        for (int i = 0; i < S::R * S::C * 4; i++)
          d[i / (S::C * 4)][i / 4 % S::C][i % 4] += partial[other][warp][i][lane];
    __syncthreads();
  }
  return S::KW == 1 || S::kw() == 0;
}

// turn multiplies slab i, whose share of W is part, and reads the share of the next one; of a Staged
// source the share is in memory number slot.
template <class S, class T, bool Down, class Source, class Slab>
__device__ __forceinline__ void turn(Source &source, const Slab &slab, typename Source::Part &part, int i, int slot, int count, Sums<S::R, S::C> &sums) {
  constexpr int P = Source::P;
  int n = S::nw() * 8 * S::C;
  if constexpr (Source::Staged) {
#pragma unroll
    for (int s = 0; s < Source::Steps; s++) {
      uint32_t b[S::C][2 * P];
      source.unpack(part, s, i, slot);
      slab.template fragments<Down, S::C, P>(b, (S::kw() * Source::Steps + s) * 16 * P, n);
      source.multiply(part, s, b, sums);
    }
  } else {
#pragma unroll
    for (int s = 0; s < Source::Steps; s++) {
      uint32_t b[S::C][2 * P];
      slab.template fragments<Down, S::C, P>(b, (S::kw() * Source::Steps + s) * 16 * P, n);
      source.multiply(part, s, b, sums);
      if (i + 1 < count)
        source.load(part, s, i + 1);
    }
  }
}

// tensor_product computes a Tile of Y in memory for a source of W: count() slabs of X, of which slab i
// begins at row(i), a multiple of 8. A warp multiplies its share of a slab in Steps steps of 16*P
// rows; load(part, s, i) reads what it multiplies in step s of slab i, a slab before that, and multiply(part, s, b,
// sums) adds the product with fragments b.
// A source that is Staged brings its shares by copies, too: bring(i, slot) begins those of slab i, slab
// by slab, to one of Stages places, and unpack(part, s, i, slot), step by step, takes the place of load.
// Grid (ceil(N/Columns), ceil(M/Rows), batch * splits).
template <class S, class T, class Source>
__device__ __forceinline__ void tensor_product(typename S::Memory &memory, Source source, const Operands<T> &o, const Epilogue<T> &e) {
  constexpr int Steps = Source::Steps, P = Source::P, Ahead = S::Stages - 1;
  static_assert(Steps * P * 16 * S::KW == S::Depth, "steps of all warps are a slab");
  int first, count;
  o.share(source.count(), first, count);
  int n0 = blockIdx.x * S::Columns;
  Feed<T, S::Depth, S::Columns, S::Threads> feed(o, o.x + o.matrix * o.xBatch, n0);
  Sums<S::R, S::C> sums;
  typename Source::Part part;
  int now = 0, next = 0; // the slabs that is multiplied, and that is brought
  auto bring = [&](int i) {
    if (i < count) {
      feed.begin(memory.slabs[next], source.row(i));
      if constexpr (Source::Staged)
        source.bring(i, next);
    }
    copy_commit();
  };
  auto brought = [&](int i) {
    if (i < count)
      feed.end(memory.slabs[next]);
    next = next + 1 == S::Stages ? 0 : next + 1;
  };
#pragma unroll 1
  for (int i = first; i < first + Ahead; i++) {
    bring(i);
    brought(i);
  }
  if constexpr (!Source::Staged) {
    if (count > first)
#pragma unroll
      for (int s = 0; s < Steps; s++)
        source.load(part, s, first);
  }
#pragma unroll 1
  for (int i = first; i < count; i++) {
    copy_wait<Ahead - 1>();
    __syncthreads(); // this slab is there, and nobody reads the last one
    bring(i + Ahead);
    if (feed.down)
      turn<S, T, true>(source, memory.slabs[now], part, i, now, count, sums);
    else
      turn<S, T, false>(source, memory.slabs[now], part, i, now, count, sums);
    now = now + 1 == S::Stages ? 0 : now + 1;
    brought(i + Ahead);
  }
  __syncthreads(); // nobody reads slabs
  int warp = S::mw() + S::MW * S::nw();
  if (!add_up<S>(memory.partial, sums.d, warp))
    return;
  sums.store(o, e, blockIdx.y * S::Rows + S::mw() * 16 * S::R, n0 + S::nw() * 8 * S::C, memory.stages[warp]);
}

#if SPC_WARPGROUPS
// Turn goes round places, and knows how often, as barriers count.
template <int Places> struct Turn {
  int place = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void next() {
    if (++place == Places) {
      place = 0;
      parity ^= 1;
    }
  }
};

// group_product computes what Groups do of Y. Four warps fetch slabs of X and of W, fetch(to, i, thread) Share bytes of
// those of slab i, as far ahead of the others as there are places; these multiply, take(part, from) what a warp
// has of a slab of W, and issue(part, s, b, sums) the products of step s with what descriptor b says. Warps wait
// for slabs and places by barriers of their own, so that those of a multiprocessor fill each other's gaps.
template <class S, class T, class Source>
__device__ __forceinline__ void group_product(unsigned char *memory, const Source &source, const Operands<T> &o, const Epilogue<T> &e) {
  using X = Slab<S::Depth, S::Columns>;
  constexpr int P = Source::P, Share = Source::Share, Stages = S::Stages;
  X *x = reinterpret_cast<X *>(memory);
  unsigned char *w = memory + Stages * sizeof(X);
  Barrier *full = reinterpret_cast<Barrier *>(w + Stages * Share), *empty = full + Stages;
  int n0 = blockIdx.x * S::Columns;
  if (threadIdx.x < Stages) {
    full[threadIdx.x].init(S::Givers);
    empty[threadIdx.x].init(S::Takers);
  }
  __syncthreads();
  if (threadIdx.x >= S::Takers) {
    registers_give<S::Give>();
    int first, count, thread = threadIdx.x % S::Givers;
    o.share(source.count(), first, count);
    Feed<T, S::Depth, S::Columns, S::Givers> feed(o, o.x + o.matrix * o.xBatch, n0, thread);
    auto give = [&](auto bring, auto copies) {
      Turn<Stages> turn;
#pragma unroll 1
      for (int i = first; i < count; i++, turn.next()) {
        empty[turn.place].wait(turn.parity ^ 1);
        source.fetch(w + turn.place * Share, i, thread);
        bring(x[turn.place], source.row(i));
        if (decltype(copies)::value) {
          full[turn.place].arrive_copied();
        } else {
          copy_commit();
          copy_wait<0>();
          full[turn.place].arrive();
        }
      }
    };
    if (feed.piece == 0)
      give([&](X &x, int k0) { feed.channels(x, k0); }, Is<true>());
    else if (feed.piece != 8)
      give([&](X &x, int k0) { feed.down ? feed.template bring<true>(x, k0) : feed.template bring<false>(x, k0); }, Is<false>());
    else if (feed.down)
      give([&](X &x, int k0) { feed.template whole<true>(x, k0); }, Is<true>());
    else
      give([&](X &x, int k0) { feed.template whole<false>(x, k0); }, Is<true>());
    __syncthreads();
    return;
  }
  registers_take<S::Take>();
  Sums<S::R, S::C> sums;
  int first, count, n = S::nw() * 8 * S::C;
  o.share(source.count(), first, count);
  auto multiply = [&](auto down) {
    Turn<Stages> turn;
#pragma unroll 1
    for (int i = first; i < count; i++, turn.next()) {
      full[turn.place].wait(turn.parity);
      group_visible();
      typename Source::Part part;
      source.take(part, w + turn.place * Share);
      group_fence();
#pragma unroll
      for (int s = 0; s < Source::Steps; s++) {
        // Of a line of rows, 16*P of them are 2*P units; the rows of columns are lines.
        constexpr bool Down = decltype(down)::value;
        source.template issue<Down>(part, s, descriptor(x[turn.place].units + (Down ? n * 8 + 2 * P * s : n * S::Depth / 8 + 16 * P * s * 8)), sums);
      }
      group_commit();
      group_wait();
      group_hold(part);
      empty[turn.place].arrive();
    }
  };
  if (o.down())
    multiply(Is<true>());
  else
    multiply(Is<false>());
  __syncthreads(); // nobody reads slabs
  float(&stage)[16][65] = reinterpret_cast<float(*)[16][65]>(memory)[threadIdx.x / 32];
  sums.store(o, e, blockIdx.y * S::Rows + S::mw() * 16 * S::R, n0 + n, stage);
}
#endif

template <class S, class T, class Source> __device__ __forceinline__ void tensor_product(const Source &source, const Operands<T> &o, const Epilogue<T> &e) {
  SPC_DYNAMIC(unsigned char, memory);
#if SPC_WARPGROUPS
  if constexpr (S::Group)
    group_product<S>(memory, source, o, e);
  else
#endif
      if constexpr (!S::Only)
    tensor_product<S>(*reinterpret_cast<typename S::Memory *>(memory), source, o, e);
}

// Registers is what sources have in common whose warps load R tiles of 16 x 16 for a step.
template <class S, class T> struct Registers {
  static constexpr int P = 1, Steps = S::Depth / S::KW / 16;
  static constexpr bool Staged = false;
  struct Part { uint32_t a[Steps][S::R][4]; };

  __device__ __forceinline__ void multiply(const Part &p, int s, const uint32_t (&b)[S::C][2], Sums<S::R, S::C> &sums) const {
#pragma unroll
    for (int c = 0; c < S::C; c++)
#pragma unroll
      for (int r = 0; r < S::R; r++)
        mma<T>(sums.d[r][c], p.a[s][r], b[c]);
  }
#if SPC_WARPGROUPS
  template <bool Down> __device__ __forceinline__ void issue(const Part &p, int s, uint64_t b, Sums<S::R, S::C> &sums) const {
#pragma unroll
    for (int r = 0; r < S::R; r++)
      wgmma<Down>(T(), sums.d[r], p.a[s][r], b);
  }
#endif
};

// Grid is how sources go through all tiles of W[M,K], of 16 rows by 16*P columns, of which those of 16 rows
// are one after another, and so many are a row.
template <class S, int P> struct Grid {
  static constexpr int Each = S::Depth / 16 / P; // of them in a slab
  int tiles, M;

  __device__ __forceinline__ int count() const { return (tiles + Each - 1) / Each; }
  __device__ __forceinline__ int row(int i) const { return i * S::Depth; }
  // find is tile r of the warp in step s of slab i; it returns false where there is none.
  __device__ __forceinline__ bool find(int64_t &tile, int r, int s, int i) const {
    int column = i * Each + S::kw() * (Each / S::KW) + s, row = (blockIdx.y * S::MW + S::mw()) * S::R + r;
    tile = int64_t(row) * tiles + column;
    return column < tiles && row * 16 < M;
  }
#if SPC_WARPGROUPS
  // fetch begins to copy what there are Units of 16 bytes of for each tile of slab i; of tiles that are not there
  // zeros, or, if Any, what the first one has.
  template <int Units, bool Any> __device__ __forceinline__ void fetch(unsigned char *to, const void *from, int i, int thread) const {
    constexpr int Row = Each * Units, All = S::Rows / 16 * Row;
#pragma unroll
    for (int j = 0; j < (All + S::Givers - 1) / S::Givers; j++) {
      int unit = j * S::Givers + thread, row = blockIdx.y * (S::Rows / 16) + unit / Row, column = i * Each + unit % Row / Units;
      bool inside = row * 16 < M && column < tiles;
      const uint4 *at = static_cast<const uint4 *>(from) + unit % Units;
      if (inside)
        at += (int64_t(row) * tiles + column) * Units;
      if (All % S::Givers == 0 || unit < All)
        copy_async<16>(to + 16 * unit, at, inside || Any ? 16 : 0);
    }
  }
  // taken is where what fetch copied of tile r of the warp in step s is, in tiles.
  __device__ static __forceinline__ int taken(int r, int s) { return (S::mw() * S::R + r) * Each + s; }
#endif
};

// fragment is a tile of 16 x 16 of W as lanes hold it, of such tiles one after another, or zeros.
__device__ __forceinline__ void fragment(uint32_t (&a)[4], const uint4 *values, int64_t tile, bool inside = true) {
  uint4 v = {0, 0, 0, 0};
  if (inside)
    v = values[tile * 32 + threadIdx.x % 32];
  a[0] = v.x;
  a[1] = v.y;
  a[2] = v.z;
  a[3] = v.w;
}

} // namespace spc
