// libcuda is a driver whose GPUs are the emulator: the calls of libcuda.so.1 that the back end
// makes. Work of a stream is done when somebody waits for it and no earlier, so that whoever
// does not wait sees it. What a kernel does that cannot finish stays: every later call on its
// context fails as that one did, until the context is destroyed. Of the environment it takes
//
//	SPC_EMULATED_GPUS    their number (1)
//	SPC_EMULATED_ARCH    their compute capability (80)
//	SPC_EMULATED_CUDA    the version of CUDA that the driver knows (12040)
//	SPC_EMULATED_MEMORY  the bytes that a GPU has (as much as the host)
//	SPC_EMULATED_ORDER   the order of threads (0, simt::Order)
//	SPC_EMULATED_FAULT   a kernel or a call that fails, and how: NAME:RESULT; without RESULT, 719.
//	                     NAME:RESULT@N is the N-th of its calls alone, from when the variable was
//	                     set on. Of a library's call RESULT is its status, and in NAME:RESULT:LOST
//	                     the context fails with LOST from then on
//	SPC_EMULATED_SLOW    a kernel or an asynchronous copy that takes as long as a file exists,
//	                     NAME:FILE, and makes FILE.begun as it begins
//	SPC_EMULATED_HELD    a file that says what the process holds of GPUs
#include "simt.h"

#include <deque>
#include <set>
#include <unistd.h>

namespace {

// Results of calls, from cuda.h.
enum Result {
  Success = 0,
  InvalidValue = 1,
  OutOfMemory = 2,
  NotInitialised = 3,
  NoDevice = 100,
  InvalidDevice = 101,
  InvalidImage = 200,
  InvalidContext = 201,
  NoBinaryForGPU = 209,
  EccUncorrectable = 214,
  UnsupportedPTXVersion = 222,
  InvalidHandle = 400,
  NotFound = 500,
  NotReady = 600,
  IllegalAddress = 700,
  LaunchTimeout = 702,
  ContextIsDestroyed = 709,
  LaunchFailed = 719,
  NotSupported = 801,
  DriverMismatch = 803,
  CaptureUnsupported = 900,
  CaptureInvalidated = 901,
  Unknown = 999,
};

struct Name {
  Result result;
  const char *name, *text;
} names[] = {
    {Success, "CUDA_SUCCESS", "no error"},
    {InvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NotInitialised, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {InvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {InvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {InvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NoBinaryForGPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {EccUncorrectable, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {UnsupportedPTXVersion, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {InvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {IllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {LaunchTimeout, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {ContextIsDestroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {LaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {NotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {DriverMismatch, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {CaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {Unknown, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

// lasting reports whether a context is of no use after a result.
bool lasting(int r) {
  return r == EccUncorrectable || r == IllegalAddress || r == LaunchTimeout || r == ContextIsDestroyed || r == LaunchFailed || r == Unknown;
}

using Address = unsigned long long;
using Work = std::function<int()>; // its Result

const size_t plainShared = 48 << 10, maxShared = 227 << 10;

int environment(const char *name, int otherwise) {
  const char *v = getenv(name);
  return v ? atoi(v) : otherwise;
}

int capability() { return environment("SPC_EMULATED_ARCH", 80); }
int version() { return environment("SPC_EMULATED_CUDA", 12040); }

// linger takes the time of a kernel or a copy that is slow.
void linger(const std::string &name) {
  const char *v = getenv("SPC_EMULATED_SLOW");
  if (!v || name.compare(0, name.npos, v, strcspn(v, ":")) != 0 || v[name.size()] != ':')
    return;
  const std::string file = v + name.size() + 1;
  if (FILE *begun = fopen((file + ".begun").c_str(), "w"))
    fclose(begun);
  while (access(file.c_str(), F_OK) == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

struct Fault {
  int result = Success;
  int lost = Success; // what the context fails with from then on, of a library's call
};

// fault is how a kernel or a call is to fail.
Fault fault(const std::string &name) {
  const char *v = getenv("SPC_EMULATED_FAULT");
  if (!v || name.compare(0, name.npos, v, strcspn(v, ":@")) != 0)
    return {};
  Fault f{LaunchFailed, Success};
  if (const char *result = strchr(v, ':')) {
    f.result = atoi(result + 1);
    if (const char *lost = strchr(result + 1, ':'))
      f.lost = atoi(lost + 1);
  }
  if (const char *nth = strchr(v, '@')) {
    static std::mutex one;
    static std::string counted; // by count
    static int count;
    std::lock_guard<std::mutex> guard(one);
    if (counted != v) {
      counted = v;
      count = 0;
    }
    if (++count != atoi(nth + 1))
      return {};
  }
  return f;
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

struct Event {
  std::atomic<bool> recorded{false}, reached{false};
  std::chrono::steady_clock::time_point at;
};

struct Stream;
struct Context;

struct Device {
  std::mutex lock; // of what follows
  Context *primary = nullptr;
  int retained = 0;
};

std::vector<std::unique_ptr<Device>> devices;

// Context is what a device holds for the process. It is never deleted: threads may have it as
// their current one when it is destroyed.
struct Context {
  std::atomic<int> failed{Success}; // for good

  std::mutex lock; // of what follows
  std::map<Address, size_t> memory, host;
  size_t held = 0, pinned = 0; // bytes of them
  std::set<Stream *> streams;
  std::set<Graph *> graphs;
  std::set<Event *> events;
  std::set<int *> modules;
  std::multiset<const void *> objects; // of libraries: one twice whose memory was given back too early

  // fail remembers the first result that lasts.
  int fail(int r) {
    int none = Success;
    if (lasting(r))
      failed.compare_exchange_strong(none, r);
    return r;
  }

  // holds reports whether n bytes at an address are of one allocation.
  bool holds(const std::map<Address, size_t> &of, Address at, size_t n) {
    std::lock_guard<std::mutex> guard(lock);
    auto next = of.upper_bound(at);
    return next != of.begin() && (--next, at + n <= next->first + next->second);
  }

  int allocate(std::map<Address, size_t> &of, Address *at, size_t n) {
    void *p = nullptr;
    if (n == 0)
      return InvalidValue;
    std::lock_guard<std::mutex> guard(lock);
    const char *limit = getenv("SPC_EMULATED_MEMORY");
    if (limit && &of == &memory && held + n > strtoull(limit, nullptr, 10))
      return OutOfMemory;
    if (posix_memalign(&p, 256, n) != 0)
      return OutOfMemory;
    memset(p, simt::poison, n);
    *at = reinterpret_cast<Address>(p);
    of[*at] = n;
    (&of == &memory ? held : pinned) += n;
    return Success;
  }

  int release(std::map<Address, size_t> &of, Address at) {
    std::lock_guard<std::mutex> guard(lock);
    auto found = of.find(at);
    if (found == of.end())
      return InvalidValue;
    (&of == &memory ? held : pinned) -= found->second;
    of.erase(found);
    free(reinterpret_cast<void *>(at));
    return Success;
  }

  void destroy();
};

std::atomic<size_t> descriptors{0}; // of libraries, which are of no context

// tell writes what the process holds of GPUs into SPC_EMULATED_HELD.
void tell() {
  const char *path = getenv("SPC_EMULATED_HELD");
  if (!path)
    return;
  static std::mutex one;
  std::lock_guard<std::mutex> writing(one);
  size_t contexts = 0, modules = 0, streams = 0, graphs = 0, events = 0, memory = 0, pinned = 0, objects = descriptors;
  for (auto &d : devices) {
    std::lock_guard<std::mutex> guard(d->lock);
    Context *c = d->primary;
    if (!c)
      continue;
    std::lock_guard<std::mutex> inside(c->lock);
    contexts++;
    modules += c->modules.size();
    streams += c->streams.size();
    graphs += c->graphs.size();
    events += c->events.size();
    memory += c->held;
    pinned += c->pinned;
    objects += c->objects.size();
  }
  std::string part = std::string(path) + ".part";
  if (FILE *f = fopen(part.c_str(), "w")) {
    fprintf(f,
            "{\"contexts\": %zu, \"modules\": %zu, \"streams\": %zu, \"graphs\": %zu, \"events\": %zu, \"memory\": %zu, \"pinned\": %zu, \"objects\": %zu}\n",
            contexts, modules, streams, graphs, events, memory, pinned, objects);
    fclose(f);
    rename(part.c_str(), path);
  }
}

// Telling tells when a call is over that makes or frees something.
struct Telling {
  ~Telling() { tell(); }
};

struct Stream {
  Context *context;
  std::mutex lock; // of queue
  std::deque<Work> queue;
  bool capturing = false, invalid = false;
  Graph *captured = nullptr;

  int add(Work w) {
    std::lock_guard<std::mutex> guard(lock);
    (capturing ? captured->work.push_back(std::move(w)) : queue.push_back(std::move(w)));
    return Success;
  }

  int wait() {
    std::lock_guard<std::mutex> guard(lock);
    if (capturing)
      return CaptureUnsupported;
    for (; !queue.empty(); queue.pop_front())
      if (context->failed == Success)
        context->fail(queue.front()());
    return context->failed;
  }
};

void Context::destroy() {
  failed = ContextIsDestroyed;
  std::lock_guard<std::mutex> guard(lock);
  for (auto *of : {&memory, &host}) {
    for (auto &a : *of)
      free(reinterpret_cast<void *>(a.first));
    of->clear();
  }
  held = pinned = 0;
  for (Stream *s : streams)
    delete s;
  for (Graph *g : graphs)
    delete g;
  for (Event *e : events)
    delete e;
  for (int *m : modules)
    delete m;
  streams.clear();
  graphs.clear();
  events.clear();
  modules.clear();
  objects.clear();
}

thread_local Context *current;
thread_local Stream *capture; // that the thread has begun
thread_local int captureMode; // CU_STREAM_CAPTURE_MODE_GLOBAL

// ready is the result of a call that needs a context, if it fails for that, or is to fail.
int ready(const char *call) {
  if (!initialised)
    return NotInitialised;
  if (!current)
    return InvalidContext;
  if (current->failed != Success)
    return current->failed;
  return current->fail(fault(call).result);
}

#define READY()                    \
  do {                             \
    int failed = ready(__func__);  \
    if (failed != Success)         \
      return failed;               \
  } while (0)

// known reports whether a handle is of the current context.
template <class T> bool known(std::set<T *> Context::*of, T *handle) {
  std::lock_guard<std::mutex> guard(current->lock);
  return (current->*of).count(handle) > 0;
}

#define KNOWN(of, handle)               \
  do {                                  \
    READY();                            \
    if (!known(&Context::of, handle))   \
      return InvalidHandle;             \
  } while (0)

#define STREAM(s) KNOWN(streams, s)

// make puts a new object into the current context, and drop deletes one of it.
template <class T> T *make(std::set<T *> Context::*of, T *made) {
  std::lock_guard<std::mutex> guard(current->lock);
  (current->*of).insert(made);
  return made;
}

template <class T> int drop(std::set<T *> Context::*of, T *handle) {
  std::lock_guard<std::mutex> guard(current->lock);
  (current->*of).erase(handle);
  delete handle;
  return Success;
}

// load is the result of loading a fat binary: it must have machine code for the device, of the
// same major capability, or assembly that the driver can compile.
int load(const char *image) {
  struct Header {
    uint32_t magic;
    uint16_t version, bytes;
    uint64_t rest;
  } head;
  struct Entry {
    uint16_t kind, version;
    uint32_t bytes;
    uint64_t payload;
    uint32_t compressed, options;
    uint16_t minor, major;
    uint32_t arch;
    uint64_t name, flags;
  } e;
  enum { assembly = 1, machine = 2, exactly = 1 << 20 };
  memcpy(&head, image, sizeof head);
  if (head.magic != 0xBA55ED50)
    return InvalidImage;
  int r = NoBinaryForGPU;
  const uint32_t own = capability();
  for (const char *at = image + head.bytes, *end = at + head.rest; at < end; at += e.bytes + e.payload) {
    memcpy(&e, at, sizeof e);
    if (e.kind == machine && (e.flags & exactly ? e.arch == own : e.arch / 10 == own / 10 && e.arch <= own))
      return Success;
    if (e.kind == assembly && e.arch <= own) // its version is four behind that of CUDA 11 and 12
      r = (e.major + 4) * 1000 + e.minor * 10 <= version() ? Success : UnsupportedPTXVersion;
  }
  return r;
}

} // namespace

extern "C" {

int cuInit(unsigned flags) {
  if (flags != 0)
    return InvalidValue;
  int r = fault(__func__).result;
  if (r != Success)
    return r;
  int n = environment("SPC_EMULATED_GPUS", 1);
  if (n == 0)
    return NoDevice;
  if (!initialised)
    for (; n > 0; n--)
      devices.emplace_back(new Device);
  initialised = true;
  tell();
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
  *version = ::version();
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
    *value = capability() / 10;
    return Success;
  case 76:
    *value = capability() % 10;
    return Success;
  case 115: // memory pools
    *value = 1;
    return Success;
  }
  return InvalidValue;
}

int cuDevicePrimaryCtxRetain(Context **context, int device) {
  if (device < 0 || device >= static_cast<int>(devices.size()))
    return InvalidDevice;
  int r = fault(__func__).result;
  if (r != Success)
    return r;
  Telling told;
  Device &d = *devices[device];
  std::lock_guard<std::mutex> guard(d.lock);
  if (d.retained++ == 0)
    d.primary = new Context;
  *context = d.primary;
  return Success;
}

// The last one who lets go of the context destroys it.
int cuDevicePrimaryCtxRelease_v2(int device) {
  if (device < 0 || device >= static_cast<int>(devices.size()))
    return InvalidDevice;
  Telling told;
  Device &d = *devices[device];
  std::lock_guard<std::mutex> guard(d.lock);
  if (d.retained == 0)
    return InvalidContext;
  if (--d.retained == 0) {
    d.primary->destroy();
    d.primary = nullptr;
  }
  return Success;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  if (device < 0 || device >= static_cast<int>(devices.size()))
    return InvalidDevice;
  Device &d = *devices[device];
  std::lock_guard<std::mutex> guard(d.lock);
  *flags = 0;
  *active = d.retained > 0;
  return Success;
}

int cuCtxSetCurrent(Context *context) {
  current = context;
  return initialised ? Success : NotInitialised;
}

int cuMemAlloc_v2(Address *at, size_t n) {
  READY();
  Telling told;
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
    int r = s->wait();
    if (r != Success)
      return r;
  }
  Telling told;
  return current->release(current->memory, at);
}

int cuMemAllocAsync(Address *at, size_t n, Stream *s) {
  STREAM(s);
  Telling told;
  return current->allocate(current->memory, at, n);
}

int cuMemFreeAsync(Address at, Stream *s) {
  STREAM(s);
  Context *c = current;
  if (!c->holds(c->memory, at, 1))
    return InvalidValue;
  return s->add([=] {
    Telling told;
    return c->release(c->memory, at);
  });
}

int cuMemHostAlloc(void **at, size_t n, unsigned) {
  READY();
  Telling told;
  return current->allocate(current->host, reinterpret_cast<Address *>(at), n);
}

int cuMemFreeHost(void *at) {
  READY();
  Telling told;
  return current->release(current->host, reinterpret_cast<Address>(at));
}

int cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t n, Stream *s) {
  STREAM(s);
  if (!current->holds(current->memory, to, n) || !current->holds(current->host, reinterpret_cast<Address>(from), n))
    return InvalidValue;
  return s->add([=] {
    linger("cuMemcpyHtoDAsync_v2");
    memcpy(reinterpret_cast<void *>(to), from, n);
    return int(Success);
  });
}

int cuMemcpyDtoHAsync_v2(void *to, Address from, size_t n, Stream *s) {
  STREAM(s);
  if (!current->holds(current->memory, from, n) || !current->holds(current->host, reinterpret_cast<Address>(to), n))
    return InvalidValue;
  return s->add([=] {
    linger("cuMemcpyDtoHAsync_v2");
    memcpy(to, reinterpret_cast<void *>(from), n);
    return int(Success);
  });
}

int cuModuleLoadFatBinary(int **module, const void *image) {
  READY();
  int r = load(static_cast<const char *>(image));
  if (r != Success)
    return r;
  Telling told;
  *module = make(&Context::modules, new int);
  return Success;
}

int cuModuleGetFunction(Function **f, int *module, const char *name) {
  KNOWN(modules, module);
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
    linger(f->name);
    int failed = fault(f->name).result;
    if (failed != Success)
      return failed;
    if (f->kernel->call(g, pointers.data()))
      return int(Success);
    fprintf(stderr, "simt: %s: %s\n", f->name.c_str(), simt::problem.c_str());
    return int(LaunchFailed);
  });
}

int cuStreamCreate(Stream **s, unsigned) {
  READY();
  Telling told;
  *s = make(&Context::streams, new Stream);
  (*s)->context = current;
  return Success;
}

int cuStreamSynchronize(Stream *s) {
  STREAM(s);
  return s->wait();
}

// A query while the thread captures, of whatever stream, ends that and tells no more, unless it says that
// it is safe.
int cuStreamQuery(Stream *s) {
  enum { relaxed = 2 };
  if (capture && captureMode != relaxed) {
    capture->invalid = true;
    return CaptureUnsupported;
  }
  STREAM(s);
  std::lock_guard<std::mutex> guard(s->lock);
  return s->queue.empty() ? Success : NotReady;
}

int cuThreadExchangeStreamCaptureMode(int *mode) {
  std::swap(*mode, captureMode);
  return Success;
}

int cuStreamDestroy_v2(Stream *s) {
  STREAM(s);
  int r = s->wait();
  if (r != Success)
    return r;
  Telling told;
  return drop(&Context::streams, s);
}

int cuStreamBeginCapture_v2(Stream *s, int) {
  STREAM(s);
  std::lock_guard<std::mutex> guard(s->lock);
  if (s->capturing)
    return CaptureUnsupported;
  s->capturing = true;
  s->captured = make(&Context::graphs, new Graph);
  capture = s;
  return Success;
}

int cuStreamEndCapture(Stream *s, Graph **graph) {
  if (s == capture)
    capture = nullptr;
  STREAM(s);
  std::lock_guard<std::mutex> guard(s->lock);
  if (!s->capturing)
    return CaptureInvalidated;
  s->capturing = false;
  *graph = s->captured;
  if (s->invalid) {
    s->invalid = false;
    drop(&Context::graphs, *graph);
    *graph = nullptr;
    return CaptureInvalidated;
  }
  return Success;
}

int cuGraphInstantiateWithFlags(Graph **exec, Graph *graph, unsigned long long) {
  KNOWN(graphs, graph);
  Telling told;
  *exec = make(&Context::graphs, new Graph(*graph));
  return Success;
}

int cuGraphLaunch(Graph *exec, Stream *s) {
  STREAM(s);
  KNOWN(graphs, exec);
  for (const Work &w : exec->work)
    s->add(w);
  return Success;
}

int cuGraphDestroy(Graph *graph) {
  KNOWN(graphs, graph);
  Telling told;
  return drop(&Context::graphs, graph);
}

int cuGraphExecDestroy(Graph *exec) {
  KNOWN(graphs, exec);
  Telling told;
  return drop(&Context::graphs, exec);
}

int cuEventCreate(Event **e, unsigned) {
  READY();
  Telling told;
  *e = make(&Context::events, new Event);
  return Success;
}

int cuEventRecord(Event *e, Stream *s) {
  STREAM(s);
  KNOWN(events, e);
  e->recorded = true;
  e->reached = false;
  return s->add([e] {
    e->at = std::chrono::steady_clock::now();
    e->reached = true;
    return int(Success);
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
  KNOWN(events, e);
  Telling told;
  return drop(&Context::events, e);
}

// For libraries that are emulated, too.

// spcEmulatedFault is the status of a library's call that is to fail, or success, 0.
int spcEmulatedFault(const char *call) {
  Fault f = fault(call);
  if (current)
    current->fail(f.lost);
  return f.result;
}

// spcEmulatedEnqueue queues work of a library on a stream, which returns false where it fails, under
// the name of a kernel.
int spcEmulatedEnqueue(Stream *s, const char *kernel, const std::function<bool()> *work) {
  STREAM(s);
  return s->add([name = std::string(kernel), work = *work]() -> int {
    int failed = fault(name).result;
    return failed != Success ? failed : work() ? Success : LaunchFailed;
  });
}

// spcEmulatedCapture reports whether what is queued on a stream is captured, and ends that where it may not be.
int spcEmulatedCapture(Stream *s, int allowed) {
  std::lock_guard<std::mutex> guard(s->lock);
  s->invalid = s->invalid || (s->capturing && !allowed);
  return s->capturing;
}

// spcEmulatedHolds reports whether bytes are of one allocation of the current device.
int spcEmulatedHolds(Address at, size_t n) { return ready("spcEmulatedHolds") == Success && current->holds(current->memory, at, n); }

// spcEmulatedRetain retains the current context for as long as the process lives.
void spcEmulatedRetain() {
  for (auto &d : devices) {
    std::lock_guard<std::mutex> guard(d->lock);
    d->retained += d->primary == current;
  }
}

// spcEmulatedMake gives the current context an object of a library, and fails where it can have none.
int spcEmulatedMake(const void *object) {
  READY();
  Telling told;
  std::lock_guard<std::mutex> guard(current->lock);
  current->objects.insert(object);
  return Success;
}

// spcEmulatedHas reports whether the current context has an object of a library.
int spcEmulatedHas(const void *object) {
  if (!current)
    return false;
  std::lock_guard<std::mutex> guard(current->lock);
  return current->objects.count(object) > 0;
}

// spcEmulatedDrop takes an object from the current context.
int spcEmulatedDrop(const void *object) {
  READY();
  Telling told;
  std::lock_guard<std::mutex> guard(current->lock);
  auto found = current->objects.find(object);
  if (found == current->objects.end())
    return InvalidHandle;
  current->objects.erase(found);
  return Success;
}

// spcEmulatedDescribe counts descriptors that were made, and, as -1, destroyed.
void spcEmulatedDescribe(int n) {
  Telling told;
  descriptors += n;
}

} // extern "C"
