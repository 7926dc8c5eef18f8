// runner is a device: it does what commands on standard input say, one after another, and
// answers on standard output. All numbers are little-endian. A command is a letter and
//
//	a	u64 bytes		allocates memory; the answer is its u64 address
//	f	u64 address		frees it
//	w	u64 address, u64 n, n bytes	writes
//	r	u64 address, u64 n	reads; the answer is n bytes
//	k	u32 n, n bytes of a name	the answer is a byte, 1 where a kernel has that name
//	l	u32 n, n bytes of a name; u32[3] grid, u32[3] block, u64 bytes of dynamic shared
//		memory; u32 order, u32 workers; u32 number of parameters, u64 for each
//		launches a kernel; the answer is the u32 length and the bytes of a message where
//		it cannot finish, which are none where it did
#include "simt.h"

namespace {

bool get(void *to, size_t n) { return fread(to, 1, n, stdin) == n; }

template <class T> T number() {
  T v;
  if (!get(&v, sizeof v)) {
    fprintf(stderr, "simt: a command ends early\n");
    exit(2);
  }
  return v;
}

std::string text() {
  std::string s(number<uint32_t>(), 0);
  get(s.data(), s.size());
  return s;
}

void launch() {
  auto kernel = simt::kernels().find(text());
  simt::Geometry g;
  for (dim3 *d : {&g.grid, &g.block}) {
    d->x = number<uint32_t>();
    d->y = number<uint32_t>();
    d->z = number<uint32_t>();
  }
  g.dynamic = number<uint64_t>();
  g.order = simt::Order(number<uint32_t>());
  g.workers = number<uint32_t>();
  std::vector<uint64_t> cells(number<uint32_t>());
  std::vector<void *> parameters;
  for (uint64_t &cell : cells) {
    cell = number<uint64_t>();
    parameters.push_back(&cell);
  }
  std::string said;
  if (kernel == simt::kernels().end())
    said = "no kernel has that name";
  else if (!kernel->second.call(g, parameters.data()))
    said = simt::problem;
  uint32_t size = said.size();
  fwrite(&size, sizeof size, 1, stdout);
  fwrite(said.data(), 1, size, stdout);
}

} // namespace

int main() {
  for (char command; get(&command, 1); fflush(stdout))
    switch (command) {
    case 'a': {
      // As large as was asked for, so that AddressSanitizer knows its end.
      void *at = nullptr;
      if (posix_memalign(&at, 256, number<uint64_t>()) != 0)
        at = nullptr;
      fwrite(&at, sizeof at, 1, stdout);
      break;
    }
    case 'f':
      free(reinterpret_cast<void *>(number<uint64_t>()));
      break;
    case 'w': {
      void *at = reinterpret_cast<void *>(number<uint64_t>());
      get(at, number<uint64_t>());
      break;
    }
    case 'r': {
      void *at = reinterpret_cast<void *>(number<uint64_t>());
      fwrite(at, 1, number<uint64_t>(), stdout);
      break;
    }
    case 'k': {
      char found = simt::kernels().count(text());
      fwrite(&found, 1, 1, stdout);
      break;
    }
    case 'l':
      launch();
      break;
    default:
      fprintf(stderr, "simt: unknown command %d\n", command);
      return 2;
    }
}
