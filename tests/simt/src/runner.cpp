// runner launches kernels on the emulator, one after another as they come on standard input,
// and answers on standard output. All numbers are little-endian. A request is
//
//	u32 length and bytes of the kernel's name
//	u32[3] grid, u32[3] block, u64 bytes of dynamic shared memory
//	u32 order, u32 workers, u32 number of parameters
//	for each parameter u32 kind and u64: 0 and a value of up to 8 bytes, or 1 and the size
//	of a buffer, whose bytes follow, or 2 for a null pointer
//
// and the answer is u32 0 and the bytes of all buffers in their order, or, where the kernel
// is unknown or cannot finish, the length and the bytes of a message.
#include "simt.h"

namespace {

bool get(void *to, size_t n) { return fread(to, 1, n, stdin) == n; }

template <class T> T number() {
  T v;
  if (!get(&v, sizeof v)) {
    fprintf(stderr, "simt: the request ends early\n");
    exit(2);
  }
  return v;
}

} // namespace

int main() {
  uint32_t length;
  while (get(&length, sizeof length)) {
    std::string name(length, 0);
    get(name.data(), length);
    simt::Geometry g;
    for (dim3 *d : {&g.grid, &g.block}) {
      d->x = number<uint32_t>();
      d->y = number<uint32_t>();
      d->z = number<uint32_t>();
    }
    g.dynamic = number<uint64_t>();
    g.order = simt::Order(number<uint32_t>());
    g.workers = number<uint32_t>();
    // Each buffer is as large as it says, so that AddressSanitizer knows its end.
    std::vector<std::pair<std::unique_ptr<char[]>, size_t>> buffers;
    std::vector<uint64_t> cells(number<uint32_t>());
    for (uint64_t &cell : cells) {
      uint32_t kind = number<uint32_t>();
      cell = number<uint64_t>();
      if (kind == 1) {
        buffers.emplace_back(new char[cell], cell);
        get(buffers.back().first.get(), cell);
        cell = reinterpret_cast<uint64_t>(buffers.back().first.get());
      } else if (kind == 2) {
        cell = 0;
      }
    }
    std::vector<void *> parameters;
    for (uint64_t &cell : cells)
      parameters.push_back(&cell);
    auto kernel = simt::kernels().find(name);
    std::string said;
    if (kernel == simt::kernels().end())
      said = "no kernel is named " + name;
    else if (!kernel->second(g, parameters.data()))
      said = simt::problem;
    uint32_t size = said.size();
    fwrite(&size, sizeof size, 1, stdout);
    fwrite(said.data(), 1, size, stdout);
    if (said.empty())
      for (auto &b : buffers)
        fwrite(b.first.get(), 1, b.second, stdout);
    fflush(stdout);
  }
}
