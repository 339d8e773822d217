// A device whose memory the host cannot read: its pages are open only while they are copied, and what touches them
// otherwise dies. Every kernel is the CPU's, on copies. It counts how often a program waits for it.
#define AT_PER_OPERATOR_HEADERS
#include <ATen/core/Tensor.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/copy_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>

namespace {

constexpr auto kDevice = c10::DeviceType::PrivateUse1;
std::atomic<int64_t> waits{0}, launches{0}, copies{0}, sent{0}, received{0};
bool reachable = false;
thread_local int inside = 0;

// Tensors may be freed after all that has a destructor.
auto& lock = *new std::mutex;
struct Block { size_t size; int open; };
auto& blocks = *new std::map<char*, Block>;

void protect(void* start, size_t size, int how) {
  TORCH_CHECK(mprotect(start, size, how) == 0, "mprotect");
}

struct Open {
  char* start = nullptr;
  explicit Open(const at::Tensor& tensor) {
    if (!tensor.device().is_privateuseone() || !tensor.storage().data()) return;
    std::lock_guard<std::mutex> held(lock);
    auto found = blocks.find((char*)tensor.storage().data());
    TORCH_CHECK(found != blocks.end(), "not of this device");
    start = found->first;
    if (found->second.open++ == 0) protect(start, found->second.size, PROT_READ | PROT_WRITE);
  }
  ~Open() {
    if (!start) return;
    std::lock_guard<std::mutex> held(lock);
    auto& block = blocks.at(start);
    if (--block.open == 0 && !reachable) protect(start, block.size, PROT_NONE);
  }
};

void release(void* data) {
  std::lock_guard<std::mutex> held(lock);
  auto found = blocks.find((char*)data);
  munmap(data, found->second.size);
  blocks.erase(found);
}

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    void* data = nullptr;
    if (size) {
      size_t page = sysconf(_SC_PAGESIZE), whole = (size + page - 1) / page * page;
      data = mmap(nullptr, whole, reachable ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      TORCH_CHECK(data != MAP_FAILED, "mmap");
      std::lock_guard<std::mutex> held(lock);
      blocks[(char*)data] = {whole, 0};
    }
    return {data, data, data ? &release : &c10::detail::deleteNothing, c10::Device(kDevice, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t size) const override { TORCH_CHECK(false, "copy_data"); }
};
Memory memory;
REGISTER_ALLOCATOR(kDevice, &memory);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return {kDevice, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream getNewStream(c10::Device device, int) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    static int one;
    *event = &one;
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { ++waits; }
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override { ++waits; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  bool isPinnedPtr(const void*) const override { return false; }
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(c10::DeviceType::CPU); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override {
    TORCH_CHECK(storage.nbytes() == 0, "only what is empty grows");
    storage.set_data_ptr_noswap(memory.allocate(size));
    storage.set_nbytes(size);
  }
};
Hooks hooks;
const bool registered = (at::RegisterPrivateUse1HooksInterface(&hooks), true);

constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                 std::optional<c10::Device>, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  return at::detail::empty_generic(size, &memory, keys, c10::dtype_or_default(dtype), format);
}
at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout>, std::optional<c10::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &memory, keys, c10::dtype_or_default(dtype));
}
at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  auto host = at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
  host._set_conj(tensor.is_conj());
  host._set_neg(tensor.is_neg());
  return host;
}
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool behind) {
  if (to.numel() == 0) return to;
  if (to.is_cpu() && !inside) ++(behind ? copies : waits);
  if (!to.is_cpu() && !inside) ++launches;
  if (!inside && to.is_cpu() != from.is_cpu()) (to.is_cpu() ? received : sent) += to.nbytes();
  Open first(from), second(to);
  auto host = on_host(to);
  host.copy_(on_host(from));
  return to;
}
at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  at::native::resize_(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}
at::Scalar item(const at::Tensor& self) {
  if (!inside) ++waits;
  Open open(self);
  return on_host(self).item();
}
at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> offset) {
  auto start = offset ? std::optional<int64_t>(offset->expect_int()) : std::nullopt;
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), start);
}
at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}
at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}
const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  return at::native::resize_(self, C10_AS_INTARRAYREF_SLOW(size), format);
}
at::Tensor& set_storage(at::Tensor& self, at::Storage storage) { return at::native::set_(self, storage); }
at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& other) { return at::native::set_tensor_(self, other); }
at::Tensor& set_all(at::Tensor& self, at::Storage storage, int64_t offset, c10::IntArrayRef size,
                    c10::IntArrayRef stride) {
  return at::native::set_storage_cpu_(self, storage, offset, size, stride);
}
// While a kernel runs, its copies wait for nobody.
struct Inside {
  Inside() { ++inside; }
  ~Inside() { --inside; }
};
// torch gives a backend's convolutions operators of their own, which do not fall back.
at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
                       c10::IntArrayRef output_padding, int64_t groups) {
  Inside kernel;
  auto shift = bias && bias->defined() ? std::optional<at::Tensor>(bias->cpu()) : std::nullopt;
  auto found = at::convolution(input.cpu(), weight.cpu(), shift, stride, padding, dilation, transposed, output_padding,
                               groups);
  return found.to(input.device());
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight, c10::IntArrayRef stride,
    c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed, c10::IntArrayRef output_padding,
    int64_t groups, std::array<bool, 3> wanted) {
  Inside kernel;
  const std::vector<int64_t> channels{grad.size(1)};
  auto sizes = wanted[2] ? at::OptionalIntArrayRef(channels) : std::nullopt;
  auto [a, b, c] = at::convolution_backward(grad.cpu(), input.cpu(), weight.cpu(), sizes, stride, padding, dilation,
                                            transposed, output_padding, groups, wanted);
  auto there = [&](const at::Tensor& one) { return one.defined() ? one.to(input.device()) : one; };
  return {there(a), there(b), there(c)};
}
void kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (!inside) ++launches;
  Inside kernel;
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", as_strided);
  m.impl("view", view);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("unfold", at::native::unfold);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("resize_", resize);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", item);
  m.impl("set_.source_Storage", set_storage);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("set_.source_Storage_storage_offset", set_all);
}
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&kernel>()); }

}  // namespace

extern "C" int PyGILState_Ensure();

namespace {

// How a kernel may end, or not: the number of rows says which.
at::Tensor fault(const at::Tensor& x) {
  switch (x.size(0)) {
    case 2: *(volatile int*)nullptr = 0; break;
    case 3: abort();
    case 4: _exit(3);
    case 5: PyGILState_Ensure(); sleep(600); break;
    case 6: {
      rlimit before, less;
      getrlimit(RLIMIT_AS, &before);
      less = before, less.rlim_cur = 0;
      setrlimit(RLIMIT_AS, &less);
      void* taken = mmap(nullptr, 1 << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      setrlimit(RLIMIT_AS, &before);
      TORCH_CHECK_WITH(OutOfMemoryError, taken != MAP_FAILED, "the device is out of memory");
      break;
    }
    case 7: TORCH_CHECK(false, "no such kernel here today");
    case 8: return at::relu(x).mul(NAN);
  }
  return at::relu(x);
}

}  // namespace

TORCH_LIBRARY(pretend, m) {
  m.def("waits() -> int", []() -> int64_t { return waits.load(); });
  m.def("launches() -> int", []() -> int64_t { return launches.load(); });
  m.def("copies() -> int", []() -> int64_t { return copies.load(); });
  m.def("sent() -> int", []() -> int64_t { return sent.load(); });
  m.def("received() -> int", []() -> int64_t { return received.load(); });
  m.def("open() -> ()", []() { reachable = true; });
  m.def("fault(Tensor x) -> Tensor", fault);
}
