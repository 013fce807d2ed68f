#include "page_lock.h"

#if defined(__linux__)
#include <dlfcn.h>
#endif

#include <atomic>
#include <mutex>

namespace recmap {
namespace {

// What is used of the CUDA driver API, which is stable, so that no CUDA is needed to build this.
class CudaDriver {
 public:
  using Result = int;
  using Context = void*;
  static constexpr unsigned kForAllContexts = 1;  // CU_MEMHOSTREGISTER_PORTABLE

  CudaDriver() {
#if defined(__linux__)
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    Result (*initialize)(unsigned) = nullptr;
    const bool complete =
        find(library, "cuInit", initialize) && find(library, "cuDeviceGet", get_device_) &&
        find(library, "cuDevicePrimaryCtxRetain", retain_context_) &&
        find(library, "cuCtxPushCurrent_v2", push_) && find(library, "cuCtxPopCurrent_v2", pop_) &&
        find(library, "cuMemHostRegister_v2", register_) &&
        find(library, "cuMemHostUnregister", unregister_);
    usable_ = complete && initialize(0) == 0;
#endif
  }

  bool prepare(int gpu) {
    const std::lock_guard lock(mutex_);
    if (!usable_ || context_.load() != nullptr) return usable_;
    int device = 0;
    Context context = nullptr;
    if (get_device_(&device, gpu) != 0) return false;
    // The context that the frameworks use as well.
    if (retain_context_(&context, device) != 0) return false;
    context_ = context;
    return true;
  }

  bool lock(void* data, size_t size) const {
    return within_context([&] { return register_(data, size, kForAllContexts) == 0; });
  }

  void unlock(void* data) const {
    within_context([&] { return unregister_(data) == 0; });
  }

 private:
#if defined(__linux__)
  template <typename Function>
  static bool find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  }
#endif

  template <typename Call>
  bool within_context(Call&& call) const {
    const Context context = context_.load();
    if (context == nullptr || push_(context) != 0) return false;
    const bool done = call();
    Context ours = nullptr;
    pop_(&ours);
    return done;
  }

  bool usable_ = false;
  std::mutex mutex_;
  std::atomic<Context> context_{nullptr};
  Result (*get_device_)(int*, int) = nullptr;
  Result (*retain_context_)(Context*, int) = nullptr;
  Result (*push_)(Context) = nullptr;
  Result (*pop_)(Context*) = nullptr;
  Result (*register_)(void*, size_t, unsigned) = nullptr;
  Result (*unregister_)(void*) = nullptr;
};

CudaDriver& driver() {
  static auto& only = *new CudaDriver;
  return only;
}

}  // namespace

bool prepare_to_lock_pages(int gpu) { return driver().prepare(gpu); }
bool lock_pages(void* data, size_t size) { return driver().lock(data, size); }
void unlock_pages(void* data) { driver().unlock(data); }

}  // namespace recmap
