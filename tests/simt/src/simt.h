// simt.h runs CUDA C++ kernels on the CPU: every thread of a block is a fibre, and blocks
// run one after another on each of some OS threads. Barriers, warp collectives, atomics and
// tensor-core products mean what the CUDA C++ Programming Guide says of them; schedules
// are chosen, so that a missing barrier shows. What it cannot show: races within a barrier
// interval that no chosen order exposes, bank conflicts, and coalescing. Asynchronous copies
// are done when the thread waits for them, and no earlier. Products of four warps are for
// files that are compiled with SPC_WARPGROUPS.
//
// It is what a kernel sees through spc/device.cuh where nvcc does not compile it.
#pragma once

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

// SPC_ARITHMETIC is for what the emulator itself computes of its own variables: nothing of a kernel is left unchecked by it.
#if defined(__GNUC__) && !defined(__clang__)
#define SPC_ARITHMETIC __attribute__((noinline, optimize("O3"), no_sanitize("address", "undefined")))
#else
#define SPC_ARITHMETIC __attribute__((noinline))
#endif

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct __align__(8) uint2 { uint32_t x, y; };
struct __align__(16) uint4 { uint32_t x, y, z, w; };

namespace simt {

// Order says in which order the threads of a block run between barriers.
enum Order { Ascending, Descending, Shuffled };

constexpr size_t stackBytes = 128 << 10;

// Stack is a stack of a fibre. Stacks are kept for the fibres of later launches.
class Stack {
  static std::mutex &lock() {
    static std::mutex m;
    return m;
  }
  static std::vector<char *> &kept() {
    static std::vector<char *> all;
    return all;
  }
  char *at = nullptr;

public:
  Stack() = default;
  Stack(Stack &&o) noexcept : at(std::exchange(o.at, nullptr)) {}
  ~Stack() {
    if (!at)
      return;
    std::lock_guard<std::mutex> guard(lock());
    kept().push_back(at);
  }
  char *get() {
    if (at)
      return at;
    std::lock_guard<std::mutex> guard(lock());
    if (kept().empty())
      return at = new char[stackBytes];
    at = kept().back();
    kept().pop_back();
    return at;
  }
};

// Copy is an asynchronous copy to shared memory of the first valid bytes and zeros.
struct Copy {
  char *to;
  const void *from;
  int bytes, valid;
};

// Product is a lane's share of a product of four warps that goes on while the lane does: what it
// reads, as it was, and its sums. The registers where these go hold NaN meanwhile.
struct Product {
  const uint32_t *a;
  uint32_t was[4], places;
  uint64_t b;
  std::vector<uint16_t> elements; // of B
  float *sums;
  void (*multiply)(Product *const (&lanes)[32]);
};

// Fiber is a thread of a block.
struct Fiber {
  dim3 index;
  int linear = 0;
  bool done = false;
  const uint64_t *waits = nullptr; // it goes on when this is no longer
  uint64_t until = 0;
  std::vector<Copy> copies;   // that wait, by group
  std::vector<size_t> groups; // where those end that are closed
  uint64_t seen = 0; // what was copied until then may be read by products
  std::vector<Product> products;
  std::map<float *, std::vector<float>> sums; // of products, by the registers where they go
  bool fenced = false, committed = true;      // registers may be used, and products waited for
  size_t issued = 0;
  Stack stack;
#if defined(__x86_64__)
  void *sp = nullptr;
#else
  ucontext_t context;
#endif
};

// Gathering is a warp collective that lanes arrive at: what each brings and gets.
struct Gathering {
  uint64_t generation = 0;
  unsigned arrived = 0;
  uint32_t in[32][24], out[32][8];
};

// Variable is a variable in shared memory, and its address as instructions know it.
struct Variable {
  std::unique_ptr<char, decltype(&free)> memory{nullptr, &free};
  size_t bytes = 0;
  uint32_t at = 0;
};

// Block is what an OS thread knows of the block that it runs.
struct Block {
  dim3 id, size, grid;
  std::vector<Fiber> fibers;
  Fiber *current = nullptr;
  int live = 0, waiting = 0; // threads that have not returned, and those at the barrier
  uint64_t barrier = 0;
  std::vector<Gathering> whole;                             // of all lanes, by warp
  std::map<std::pair<int, unsigned>, Gathering> gatherings; // of others, by warp and mask
  std::map<const void *, Variable> shared; // by declaration
  Variable dynamic;
  uint32_t used = 0; // of the addresses of shared memory
  std::unordered_map<uintptr_t, uint64_t> copied; // when, of what may be read by products, in 16 bytes
  uint64_t copies = 0;
  std::deque<std::pair<std::vector<Copy>, std::function<void()>>> underway; // copies, and what follows them
  std::map<int, std::vector<uint64_t>> issued; // what four warps multiply by, in their order
  const std::function<void()> *body = nullptr;
  const void *bottom = nullptr; // of the OS thread's stack
  size_t depth = 0;
#if defined(__x86_64__)
  void *sp = nullptr;
#else
  ucontext_t context;
#endif
};

inline thread_local Block *block;

// Why a launch failed.
inline std::string problem;
inline std::mutex problemLock;

// What uninitialised shared memory holds: NaN in every floating-point type.
constexpr unsigned char poison = 0xff;

#if defined(__x86_64__)
// swap saves the registers that a call keeps, and the stack pointer, and goes on with
// another stack.
__attribute__((naked, noinline)) inline void swap(void **, void *) {
  asm volatile(
      "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
      "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
      "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret");
}
#endif

// fail ends the process where a kernel does what no GPU promises to bear.
inline void fail(const char *why) {
  fprintf(stderr, "simt: %s\n", why);
  abort();
}

// leave goes from the current fibre to the scheduler; last says that it never comes back.
inline void leave(bool last = false) {
  Fiber *f = block->current;
#if defined(__SANITIZE_ADDRESS__)
  void *fake = nullptr;
  __sanitizer_start_switch_fiber(last ? nullptr : &fake, block->bottom, block->depth);
#endif
  (void)last;
#if defined(__x86_64__)
  swap(&f->sp, block->sp);
#else
  swapcontext(&f->context, &block->context);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, &block->bottom, &block->depth);
#endif
}

// enter lets a fibre run until it waits or returns.
inline void enter(Fiber &f) {
  block->current = &f;
#if defined(__SANITIZE_ADDRESS__)
  void *fake;
  __sanitizer_start_switch_fiber(&fake, f.stack.get(), stackBytes);
#endif
#if defined(__x86_64__)
  swap(&block->sp, f.sp);
#else
  swapcontext(&block->context, &f.context);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

// wait lets others run until the counter changes.
inline void wait(const uint64_t *counter) {
  block->current->waits = counter;
  block->current->until = *counter;
  leave();
}

inline void release() {
  block->waiting = 0;
  block->barrier++;
}

inline void barrier() {
  if (++block->waiting == block->live)
    release();
  else
    wait(&block->barrier);
}

inline void start() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &block->bottom, &block->depth);
#endif
  (*block->body)();
  if (!block->current->products.empty())
    fail("a thread ends while its products go on");
  block->current->done = true;
  // A barrier does not wait for threads that have returned.
  if (--block->live > 0 && block->waiting == block->live)
    release();
  leave(true);
  abort();
}

// unreturned is more than the bytes at the top of a stack that start, which never returns, and leave take: what a kernel called has returned.
constexpr size_t unreturned = 4096;

inline void prepare(Fiber &f, int linear) {
  const dim3 &n = block->size;
  f.index = dim3(linear % n.x, linear / n.x % n.y, linear / (n.x * n.y));
  f.linear = linear;
  f.done = false;
  f.waits = nullptr;
  f.copies.clear();
  f.groups.clear();
  f.seen = 0;
  f.products.clear();
  f.sums.clear();
  f.fenced = false;
  f.committed = true;
  f.issued = 0;
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(f.stack.get() + stackBytes - unreturned, unreturned);
#endif
#if defined(__x86_64__)
  // start finds its stack as after a call; six registers are popped before.
  void **top = reinterpret_cast<void **>(reinterpret_cast<uintptr_t>(f.stack.get() + stackBytes) & ~uintptr_t(15)) - 2;
  *top = reinterpret_cast<void *>(start);
  memset(top - 6, 0, 6 * sizeof *top);
  f.sp = top - 6;
#else
  getcontext(&f.context);
  f.context.uc_stack.ss_sp = f.stack.get();
  f.context.uc_stack.ss_size = stackBytes;
  f.context.uc_link = nullptr;
  makecontext(&f.context, start, 0);
#endif
}

// copy does an asynchronous copy.
inline void copy(const Copy &c) {
  memcpy(c.to, c.from, c.valid);
  memset(c.to + c.valid, 0, c.bytes - c.valid);
#if defined(SPC_WARPGROUPS)
  block->copied[reinterpret_cast<uintptr_t>(c.to) / 16] = ++block->copies;
#endif
}

// run runs a block to its end. It returns false, and says so in problem, where all of its
// threads wait.
inline bool run(Order order, uint64_t seed) {
  Block &b = *block;
  int n = static_cast<int>(b.fibers.size());
  b.live = n;
  b.waiting = 0;
  b.whole.assign((n + 31) / 32, {});
  b.gatherings.clear();
  b.copied.clear();
  b.copies = 0;
  b.underway.clear();
  b.issued.clear();
  std::vector<int> turns(n);
  for (int i = 0; i < n; i++) {
    prepare(b.fibers[i], i);
    turns[i] = order == Descending ? n - 1 - i : i;
  }
  while (b.live > 0) {
    if (order == Shuffled)
      for (int i = n - 1; i > 0; i--) {
        seed = seed * 6364136223846793005u + 1442695040888963407u; // Knuth, MMIX
        std::swap(turns[i], turns[(seed >> 33) % (i + 1)]);
      }
    bool moved = false;
    for (int i : turns) {
      Fiber &f = b.fibers[i];
      if (f.done || (f.waits && *f.waits == f.until))
        continue;
      f.waits = nullptr;
      moved = true;
      enter(f);
    }
    if (!moved && !b.underway.empty()) { // no earlier
      auto next = std::move(b.underway.front());
      b.underway.pop_front();
      for (const Copy &c : next.first)
        copy(c);
      next.second();
      moved = true;
    }
    if (!moved) {
      char said[128];
      snprintf(said, sizeof said, "block (%u,%u,%u): %d of %d threads wait for others that do not come", b.id.x, b.id.y, b.id.z, b.live, n);
      std::lock_guard<std::mutex> lock(problemLock);
      problem = said;
#if defined(__SANITIZE_ADDRESS__)
      for (Fiber &f : b.fibers) // the stacks of those that wait are kept for others
        if (!f.done)
          __asan_unpoison_memory_region(f.stack.get(), stackBytes);
#endif
      return false;
    }
  }
  for (int i = 0; i < n; i += 32)
    if (auto of = b.issued.find(i / 128); of != b.issued.end() && b.fibers[i].issued < of->second.size())
      fail("a warp leaves out a product of the four");
  return true;
}

// place makes a variable in shared memory, which is poisoned at first. It is as large as was asked for,
// so that AddressSanitizer knows its end.
inline Variable place(size_t bytes, size_t align) {
  Variable v;
  void *memory = nullptr;
  if (posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, bytes) != 0)
    abort();
  memset(memory, poison, bytes);
  v.memory.reset(static_cast<char *>(memory));
  v.bytes = bytes;
  v.at = (block->used + align - 1) / align * align;
  block->used = v.at + bytes;
  return v;
}

// address is that of a place in shared memory as instructions know it.
inline uint32_t address(const void *of) {
  auto in = [of](const Variable &v) { return of >= v.memory.get() && of < v.memory.get() + v.bytes; };
  const Variable *found = in(block->dynamic) ? &block->dynamic : nullptr;
  for (auto &v : block->shared)
    if (in(v.second))
      found = &v.second;
  if (!found)
    fail("an address of shared memory is of something else");
  return found->at + (static_cast<const char *>(of) - found->memory.get());
}

// at is the place of such an address, of so many bytes.
inline const char *at(uint32_t address, size_t bytes) {
  auto in = [=](const Variable &v) { return address >= v.at && address + bytes <= v.at + v.bytes; };
  if (in(block->dynamic))
    return block->dynamic.memory.get() + (address - block->dynamic.at);
  for (auto &v : block->shared)
    if (in(v.second))
      return v.second.memory.get() + (address - v.second.at);
  fail("an instruction reads outside of shared memory");
  return nullptr;
}

// Geometry is the shape of a launch.
struct Geometry {
  dim3 grid, block;
  size_t dynamic; // bytes of dynamic shared memory
  Order order;
  int workers;
};

// launch runs a grid. It returns false where a block cannot finish.
inline bool launch(const Geometry &g, const std::function<void()> &body) {
  uint64_t blocks = uint64_t(g.grid.x) * g.grid.y * g.grid.z;
  std::atomic<uint64_t> next{0};
  std::atomic<bool> ok{true};
  auto work = [&] {
    Block b;
    block = &b;
    b.size = g.block;
    b.grid = g.grid;
    b.body = &body;
    b.fibers = std::vector<Fiber>(size_t(g.block.x) * g.block.y * g.block.z);
    for (uint64_t i; (i = next++) < blocks && ok;) {
      b.id = dim3(i % g.grid.x, i / g.grid.x % g.grid.y, i / (uint64_t(g.grid.x) * g.grid.y));
      b.shared.clear();
      b.used = 1040; // aligned no more than variables ask for
      b.dynamic = place(g.dynamic, 1024);
      if (!run(g.order, i + 1))
        ok = false;
    }
    block = nullptr;
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < g.workers; i++)
    threads.emplace_back(work);
  work();
  for (auto &t : threads)
    t.join();
  return ok;
}

// shared returns a block's variable of a declaration, which is poisoned at first.
template <class T> T *shared(const void *declaration) {
  auto at = block->shared.find(declaration);
  if (at == block->shared.end())
    at = block->shared.emplace(declaration, place(sizeof(T), alignof(T))).first;
  return reinterpret_cast<T *>(at->second.memory.get());
}

// lanes is the mask of the lanes of the current warp that the block has.
inline unsigned lanes() {
  int left = static_cast<int>(block->fibers.size()) - (block->current->linear & ~31);
  return left >= 32 ? ~0u : (1u << left) - 1;
}

// gather brings what each lane of a mask has to the last one that comes, which computes
// what each of them gets.
template <class F> void gather(unsigned mask, const void *in, size_t bytesIn, void *out, size_t bytesOut, F compute) {
  int lane = block->current->linear & 31;
  if (!(mask >> lane & 1)) {
    fprintf(stderr, "simt: lane %d is not in the mask %08x of its collective\n", lane, mask);
    abort();
  }
  int warp = block->current->linear >> 5;
  Gathering &g = mask == ~0u ? block->whole[warp] : block->gatherings[{warp, mask}];
  memcpy(g.in[lane], in, bytesIn);
  if (++g.arrived == static_cast<unsigned>(__builtin_popcount(mask))) {
    g.arrived = 0;
    compute(g);
    g.generation++;
  } else {
    wait(&g.generation);
  }
  memcpy(out, g.out[lane], bytesOut);
}

// aligned ends the process where an address is no multiple of bytes.
inline void aligned(const char *what, const void *at, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(at) % bytes == 0)
    return;
  fprintf(stderr, "simt: %s of %zu bytes at %p\n", what, bytes, at);
  abort();
}

inline void copy_async(void *to, const void *from, int bytes, int valid) {
  aligned("an asynchronous copy to", to, bytes);
  aligned("an asynchronous copy from", from, bytes);
  if (valid < 0 || valid > bytes) {
    fprintf(stderr, "simt: an asynchronous copy of %d bytes, %d of which are valid\n", bytes, valid);
    abort();
  }
  block->current->copies.push_back({static_cast<char *>(to), from, bytes, valid});
}

inline void copy_commit() { block->current->groups.push_back(block->current->copies.size()); }

// copy_wait does the copies of all groups but the open one and those pending before it.
inline void copy_wait(int pending) {
  auto &copies = block->current->copies;
  auto &groups = block->current->groups;
  int n = static_cast<int>(groups.size()) - pending;
  if (n <= 0)
    return;
  size_t done = groups[n - 1];
  for (size_t i = 0; i < done; i++)
    copy(copies[i]);
  copies.erase(copies.begin(), copies.begin() + done);
  groups.erase(groups.begin(), groups.begin() + n);
  for (size_t &end : groups)
    end -= done;
}

// What follows is for products of four warps (PTX ISA, "Asynchronous Warpgroup Level Matrix
// Multiply-Accumulate Instructions"). They are done when the thread waits for them, and no
// earlier; what they read may not change until then.

// visible lets products of the thread read what was copied before.
inline void visible() { block->current->seen = block->copies; }

// seen reports whether products of the thread may read the 16 bytes at an address.
inline bool seen(const void *at) {
  auto found = block->copied.find(reinterpret_cast<uintptr_t>(at) / 16);
  return found == block->copied.end() || found->second <= block->current->seen;
}

// fence lets products use the registers that the thread used before.
inline void fence() { block->current->fenced = true; }

// issue begins a product whose sums are added to n registers from d on.
inline void issue(float *d, int n, Product p) {
  Fiber &f = *block->current;
  if (!f.fenced)
    fail("a product uses registers that no fence is for");
  std::vector<float> &sums = f.sums[d];
  if (sums.empty()) {
    sums.assign(d, d + n);
    memset(d, poison, n * sizeof(float));
  }
  p.sums = sums.data();
  f.products.push_back(std::move(p));
  f.committed = false;
  if (f.linear % 32 == 0) {
    auto &others = block->issued[f.linear / 128];
    if (f.issued == others.size())
      others.push_back(f.products.back().b);
    if (others[f.issued++] != f.products.back().b)
      fail("four warps multiply by different matrices");
  }
}

inline void commit() { block->current->committed = true; }

// finish waits for all products.
inline void finish() {
  uint32_t none = 0;
  gather(~0u, &none, 0, &none, 0, [](Gathering &) {
    Fiber *lanes = &block->fibers[block->current->linear & ~31];
    for (size_t i = 0; i < lanes[0].products.size(); i++) {
      Product *all[32];
      for (int l = 0; l < 32; l++) {
        if (lanes[l].products.size() != lanes[0].products.size() || !lanes[l].committed)
          fail("lanes of a warp wait for different products");
        Product &p = lanes[l].products[i];
        if (p.b != lanes[0].products[i].b || memcmp(p.a, p.was, sizeof p.was) != 0)
          fail("what a product reads in registers changes before it is waited for");
        all[l] = &p;
      }
      all[0]->multiply(all);
    }
  });
  Fiber &f = *block->current;
  for (auto &s : f.sums)
    for (size_t i = 0; i < s.second.size(); i++) {
      if (s.first[i] == s.first[i])
        fail("sums are written before the product is waited for");
      s.first[i] = s.second[i];
    }
  f.sums.clear();
  f.products.clear();
  f.fenced = false;
}

// Barrier is an mbarrier: a phase ends when so many threads have arrived.
class Barrier {
  uint64_t state; // threads that are yet to come, all of them above 16, and the phase above 32

public:
  void init(unsigned threads) { state = threads | threads << 16; }
  void arrive() {
    if ((--state & 0xffff) == 0)
      state = ((state >> 32) + 1) << 32 | (state & 0xffff0000) | (state >> 16 & 0xffff);
  }
  // arrive_copied is arrive when all copies that the thread has begun are done, which is when nobody can go on before.
  void arrive_copied() {
    std::vector<Copy> all = std::move(block->current->copies);
    block->current->copies.clear();
    block->current->groups.clear();
    block->underway.emplace_back(std::move(all), [this] { arrive(); });
  }
  // wait waits for the end of the phase whose lowest bit is parity.
  void wait(unsigned parity) const {
    while ((state >> 32 & 1) == parity)
      simt::wait(&state);
  }
};

// shuffle gives each lane the value of the lane that from says.
template <class T, class F> T shuffle(unsigned mask, T v, F from) {
  static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
  struct { uint32_t value[2]; int source; } in = {};
  memcpy(in.value, &v, sizeof v);
  in.source = from(block->current->linear & 31);
  T out;
  gather(mask & lanes(), &in, sizeof in, &out, sizeof out, [mask](Gathering &g) {
    for (int l = 0; l < 32; l++) {
      int source = static_cast<int>(g.in[l][2]);
      if (mask >> l & 1 && source >= 0 && source < 32)
        memcpy(g.out[l], g.in[source], 8);
    }
  });
  return out;
}

// Kernel is a kernel that is launched with a pointer to each of its parameters, of so many
// bytes.
struct Kernel {
  std::function<bool(const Geometry &, void **)> call;
  std::vector<size_t> sizes;
};

inline std::map<std::string, Kernel> &kernels() {
  static std::map<std::string, Kernel> all;
  return all;
}

template <class... A, size_t... I> Kernel caller(void (*k)(A...), std::index_sequence<I...>) {
  static_assert(((sizeof(A) <= 8) && ...), "the back end passes parameters of up to 8 bytes");
  return {[k](const Geometry &g, void **p) { return launch(g, [=] { k(*static_cast<std::decay_t<A> *>(p[I])...); }); }, {sizeof(A)...}};
}

// Registered makes a kernel known by its name.
struct Registered {
  template <class... A> Registered(const char *name, void (*k)(A...)) {
    kernels()[name] = caller(k, std::index_sequence_for<A...>{});
  }
};

} // namespace simt

#define threadIdx (simt::block->current->index)
#define blockIdx (simt::block->id)
#define blockDim (simt::block->size)
#define gridDim (simt::block->grid)

inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }

// The products of the bytes of a and b, and c.
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 32; i += 8)
    c += (a >> i & 255) * (b >> i & 255);
  return c;
}

inline void __syncthreads() { simt::barrier(); }

inline void __syncwarp(unsigned mask = ~0u) {
  uint32_t none = 0;
  simt::gather(mask & simt::lanes(), &none, 0, &none, 0, [](simt::Gathering &) {});
}

template <class T> T __shfl_sync(unsigned mask, T v, int lane, int width = 32) {
  return simt::shuffle(mask, v, [=](int l) { return (l & ~(width - 1)) | (lane & (width - 1)); });
}

template <class T> T __shfl_xor_sync(unsigned mask, T v, int other, int width = 32) {
  return simt::shuffle(mask, v, [=](int l) {
    int from = l ^ other;
    return from / width == l / width ? from : l;
  });
}

template <class T> T __shfl_down_sync(unsigned mask, T v, int by, int width = 32) {
  return simt::shuffle(mask, v, [=](int l) { return (l & (width - 1)) + by < width ? l + by : l; });
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  uint32_t in = predicate != 0, out;
  simt::gather(mask & simt::lanes(), &in, 4, &out, 4, [mask](simt::Gathering &g) {
    uint32_t bits = 0;
    for (int l = 0; l < 32; l++)
      if (mask >> l & 1 && g.in[l][0])
        bits |= 1u << l;
    for (auto &o : g.out)
      o[0] = bits;
  });
  return out;
}

template <class T> T atomicAdd(T *p, T v) {
  T old, sum;
  __atomic_load(p, &old, __ATOMIC_RELAXED);
  do
    sum = old + v;
  while (!__atomic_compare_exchange(p, &old, &sum, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}
