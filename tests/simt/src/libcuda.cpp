// libcuda is a driver whose GPUs are the emulator: the calls of libcuda.so.1 that the back end
// makes. Work of a stream is done when somebody waits for it and no earlier, so that whoever
// does not wait sees it; a kernel that cannot finish leaves the GPU unusable, as on hardware.
// Of the environment it takes SPC_EMULATED_GPUS, their number (1), and SPC_EMULATED_ORDER, the
// order of threads (0, simt::Order), SPC_EMULATED_FAULT, a kernel that fails, and
// SPC_EMULATED_MEMORY, the bytes that a GPU has (as much as the host).
#include "simt.h"

#include <deque>
#include <set>

namespace {

// Results of calls, from cuda.h.
enum Result {
  Success = 0,
  InvalidValue = 1,
  OutOfMemory = 2,
  NotInitialised = 3,
  InvalidDevice = 101,
  InvalidImage = 200,
  InvalidContext = 201,
  InvalidHandle = 400,
  NotFound = 500,
  NotReady = 600,
  LaunchFailed = 719,
  CaptureUnsupported = 900,
  CaptureInvalidated = 901,
};

struct Name {
  Result result;
  const char *name, *text;
} names[] = {
    {Success, "CUDA_SUCCESS", "no error"},
    {InvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NotInitialised, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {InvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {InvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {InvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {InvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {LaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
};

using Address = unsigned long long;
using Work = std::function<bool()>; // false where a kernel cannot finish

const size_t plainShared = 48 << 10, maxShared = 227 << 10;

int environment(const char *name, int otherwise) {
  const char *v = getenv(name);
  return v ? atoi(v) : otherwise;
}

bool initialised;

struct Function {
  std::string name;
  const simt::Kernel *kernel;
  std::atomic<size_t> shared{plainShared};
};

struct Graph {
  std::vector<Work> work;
};

struct Stream;

struct Device {
  std::mutex lock; // of what follows
  std::map<Address, size_t> memory, host;
  size_t held = 0; // bytes of memory
  std::set<Stream *> streams;
  std::atomic<bool> broken{false};

  // holds reports whether n bytes at an address are of one allocation.
  bool holds(const std::map<Address, size_t> &of, Address at, size_t n) {
    std::lock_guard<std::mutex> guard(lock);
    auto next = of.upper_bound(at);
    return next != of.begin() && (--next, at + n <= next->first + next->second);
  }

  Result allocate(std::map<Address, size_t> &of, Address *at, size_t n) {
    void *p = nullptr;
    if (n == 0)
      return InvalidValue;
    const char *limit = getenv("SPC_EMULATED_MEMORY");
    if (limit && &of == &memory && held + n > strtoull(limit, nullptr, 10))
      return OutOfMemory;
    if (posix_memalign(&p, 256, n) != 0)
      return OutOfMemory;
    memset(p, simt::poison, n);
    std::lock_guard<std::mutex> guard(lock);
    *at = reinterpret_cast<Address>(p);
    of[*at] = n;
    if (&of == &memory)
      held += n;
    return Success;
  }

  Result release(std::map<Address, size_t> &of, Address at) {
    std::lock_guard<std::mutex> guard(lock);
    auto found = of.find(at);
    if (found == of.end())
      return InvalidValue;
    if (&of == &memory)
      held -= found->second;
    of.erase(found);
    free(reinterpret_cast<void *>(at));
    return Success;
  }
};

struct Stream {
  Device *device;
  std::mutex lock; // of queue
  std::deque<Work> queue;
  bool capturing = false;
  Graph *captured = nullptr;

  Result add(Work w) {
    std::lock_guard<std::mutex> guard(lock);
    (capturing ? captured->work.push_back(std::move(w)) : queue.push_back(std::move(w)));
    return Success;
  }

  Result wait() {
    std::lock_guard<std::mutex> guard(lock);
    if (capturing)
      return CaptureUnsupported;
    for (; !queue.empty(); queue.pop_front())
      if (!device->broken && !queue.front()())
        device->broken = true;
    return device->broken ? LaunchFailed : Success;
  }
};

std::vector<std::unique_ptr<Device>> devices;
thread_local Device *current;

// ready is the result of a call that needs a context, if it fails for that.
Result ready() {
  if (!initialised)
    return NotInitialised;
  if (!current)
    return InvalidContext;
  return current->broken ? LaunchFailed : Success;
}

#define READY()                   \
  do {                            \
    Result failed = ready();      \
    if (failed != Success)        \
      return failed;              \
  } while (0)

// known reports whether a handle is of a stream of the current device.
bool known(Stream *s) {
  std::lock_guard<std::mutex> guard(current->lock);
  return current->streams.count(s) > 0;
}

#define STREAM(s)             \
  do {                        \
    READY();                  \
    if (!known(s))            \
      return InvalidHandle;   \
  } while (0)

struct Event {
  std::atomic<bool> recorded{false}, reached{false};
  std::chrono::steady_clock::time_point at;
  Stream *stream = nullptr;
};

enum { fatBinaryMagic = 0xBA55ED50u };

} // namespace

extern "C" {

int cuInit(unsigned flags) {
  if (flags != 0)
    return InvalidValue;
  if (!initialised)
    for (int i = environment("SPC_EMULATED_GPUS", 1); i > 0; i--)
      devices.emplace_back(new Device);
  initialised = true;
  return Success;
}

int cuGetErrorName(int result, const char **name) {
  for (const Name &n : names)
    if (n.result == result) {
      *name = n.name;
      return Success;
    }
  return InvalidValue;
}

int cuGetErrorString(int result, const char **text) {
  for (const Name &n : names)
    if (n.result == result) {
      *text = n.text;
      return Success;
    }
  return InvalidValue;
}

int cuDriverGetVersion(int *version) {
  *version = 12040;
  return Success;
}

int cuDeviceGetCount(int *n) {
  *n = static_cast<int>(devices.size());
  return initialised ? Success : NotInitialised;
}

int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < static_cast<int>(devices.size()) ? Success : InvalidDevice;
}

int cuDeviceGetName(char *name, int n, int) {
  snprintf(name, n, "SIMT emulator");
  return Success;
}

int cuDeviceTotalMem_v2(size_t *bytes, int) {
  *bytes = size_t(16) << 30;
  return Success;
}

int cuDeviceGetAttribute(int *value, int attribute, int) {
  switch (attribute) {
  case 16: // multiprocessors
    *value = 4;
    return Success;
  case 75: // compute capability
    *value = 8;
    return Success;
  case 76:
    *value = 0;
    return Success;
  case 115: // memory pools
    *value = 1;
    return Success;
  }
  return InvalidValue;
}

int cuDevicePrimaryCtxRetain(Device **context, int device) {
  if (device < 0 || device >= static_cast<int>(devices.size()))
    return InvalidDevice;
  *context = devices[device].get();
  return Success;
}

int cuCtxSetCurrent(Device *context) {
  current = context;
  return initialised ? Success : NotInitialised;
}

int cuMemAlloc_v2(Address *at, size_t n) {
  READY();
  return current->allocate(current->memory, at, n);
}

// All work under way ends before memory is free.
int cuMemFree_v2(Address at) {
  READY();
  std::set<Stream *> streams;
  {
    std::lock_guard<std::mutex> guard(current->lock);
    streams = current->streams;
  }
  for (Stream *s : streams) {
    Result r = s->wait();
    if (r != Success)
      return r;
  }
  return current->release(current->memory, at);
}

int cuMemAllocAsync(Address *at, size_t n, Stream *s) {
  STREAM(s);
  return current->allocate(current->memory, at, n);
}

int cuMemFreeAsync(Address at, Stream *s) {
  STREAM(s);
  Device *d = current;
  if (!d->holds(d->memory, at, 1))
    return InvalidValue;
  return s->add([=] { return d->release(d->memory, at) == Success; });
}

int cuMemHostAlloc(void **at, size_t n, unsigned) {
  READY();
  return current->allocate(current->host, reinterpret_cast<Address *>(at), n);
}

int cuMemFreeHost(void *at) {
  READY();
  return current->release(current->host, reinterpret_cast<Address>(at));
}

int cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t n, Stream *s) {
  STREAM(s);
  if (!current->holds(current->memory, to, n) || !current->holds(current->host, reinterpret_cast<Address>(from), n))
    return InvalidValue;
  return s->add([=] { return memcpy(reinterpret_cast<void *>(to), from, n) != nullptr; });
}

int cuMemcpyDtoHAsync_v2(void *to, Address from, size_t n, Stream *s) {
  STREAM(s);
  if (!current->holds(current->memory, from, n) || !current->holds(current->host, reinterpret_cast<Address>(to), n))
    return InvalidValue;
  return s->add([=] { return memcpy(to, reinterpret_cast<void *>(from), n) != nullptr; });
}

int cuModuleLoadFatBinary(void **module, const void *image) {
  READY();
  uint32_t magic;
  memcpy(&magic, image, sizeof magic);
  *module = &devices;
  return magic == fatBinaryMagic ? Success : InvalidImage;
}

int cuModuleGetFunction(Function **f, void *, const char *name) {
  READY();
  auto found = simt::kernels().find(name);
  if (found == simt::kernels().end())
    return NotFound;
  *f = new Function;
  (*f)->name = name;
  (*f)->kernel = &found->second;
  return Success;
}

int cuFuncSetAttribute(Function *f, int attribute, int value) {
  READY();
  if (attribute != 8 || value < 0 || size_t(value) > maxShared) // dynamic shared memory
    return InvalidValue;
  f->shared = value;
  return Success;
}

int cuLaunchKernel(Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, Stream *s,
                   void **parameters, void **) {
  STREAM(s);
  if (!gx || !gy || !gz || !bx || !by || !bz || gx > 0x7fffffff || gy > 0xffff || gz > 0xffff || uint64_t(bx) * by * bz > 1024 || bz > 64 ||
      shared > f->shared)
    return InvalidValue;
  simt::Geometry g{dim3(gx, gy, gz), dim3(bx, by, bz), shared, simt::Order(environment("SPC_EMULATED_ORDER", 0)),
                   static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))};
  std::vector<uint64_t> cells;
  for (size_t size : f->kernel->sizes) {
    uint64_t cell = 0;
    memcpy(&cell, parameters[cells.size()], size);
    cells.push_back(cell);
  }
  return s->add([f, g, cells]() mutable {
    std::vector<void *> pointers;
    for (uint64_t &c : cells)
      pointers.push_back(&c);
    const char *fault = getenv("SPC_EMULATED_FAULT");
    if (fault && f->name == fault)
      return false;
    if (f->kernel->call(g, pointers.data()))
      return true;
    fprintf(stderr, "simt: %s: %s\n", f->name.c_str(), simt::problem.c_str());
    return false;
  });
}

int cuStreamCreate(Stream **s, unsigned) {
  READY();
  *s = new Stream;
  (*s)->device = current;
  std::lock_guard<std::mutex> guard(current->lock);
  current->streams.insert(*s);
  return Success;
}

int cuStreamSynchronize(Stream *s) {
  STREAM(s);
  return s->wait();
}

int cuStreamDestroy_v2(Stream *s) {
  STREAM(s);
  Result r = s->wait();
  std::lock_guard<std::mutex> guard(current->lock);
  current->streams.erase(s);
  delete s;
  return r;
}

int cuStreamBeginCapture_v2(Stream *s, int) {
  STREAM(s);
  std::lock_guard<std::mutex> guard(s->lock);
  if (s->capturing)
    return CaptureUnsupported;
  s->capturing = true;
  s->captured = new Graph;
  return Success;
}

int cuStreamEndCapture(Stream *s, Graph **graph) {
  STREAM(s);
  std::lock_guard<std::mutex> guard(s->lock);
  if (!s->capturing)
    return CaptureInvalidated;
  s->capturing = false;
  *graph = s->captured;
  return Success;
}

int cuGraphInstantiateWithFlags(Graph **exec, Graph *graph, unsigned long long) {
  READY();
  *exec = new Graph(*graph);
  return Success;
}

int cuGraphLaunch(Graph *exec, Stream *s) {
  STREAM(s);
  for (const Work &w : exec->work)
    s->add(w);
  return Success;
}

int cuGraphDestroy(Graph *graph) {
  delete graph;
  return Success;
}

int cuGraphExecDestroy(Graph *exec) {
  READY();
  delete exec;
  return Success;
}

int cuEventCreate(Event **e, unsigned) {
  READY();
  *e = new Event;
  return Success;
}

int cuEventRecord(Event *e, Stream *s) {
  STREAM(s);
  e->recorded = true;
  e->reached = false;
  e->stream = s;
  return s->add([e] {
    e->at = std::chrono::steady_clock::now();
    e->reached = true;
    return true;
  });
}

int cuEventElapsedTime(float *ms, Event *from, Event *to) {
  READY();
  if (!from->recorded || !to->recorded)
    return InvalidHandle;
  if (!from->reached || !to->reached)
    return NotReady;
  *ms = std::chrono::duration<float, std::milli>(to->at - from->at).count();
  return Success;
}

int cuEventDestroy_v2(Event *e) {
  READY();
  delete e;
  return Success;
}

} // extern "C"
