// A thread with a small stack. The default of 8 MB counts against a limit on the memory of the
// process whether it is used or not, and what runs here needs little.
#pragma once

#include <pthread.h>
#include <sys/resource.h>

#include <cstddef>

namespace recmap {

class SmallStackThread {
 public:
  static constexpr size_t kStackSize = size_t{512} << 10;

  SmallStackThread() = default;
  SmallStackThread(const SmallStackThread&) = delete;
  SmallStackThread& operator=(const SmallStackThread&) = delete;
  ~SmallStackThread() {
    if (started_) pthread_join(thread_, nullptr);
  }

  // Calls run(), which must not throw and must outlive the thread. False if the system does not let
  // another thread start. The destructor waits until run() returns.
  template <typename Run>
  bool start(Run& run) {
    started_ = create(&thread_, &call<Run>, &run);
    return started_;
  }

  // The same, for a thread that nobody waits for.
  static bool start_detached(void* (*run)(void*), void* argument) {
    pthread_t thread;
    if (!create(&thread, run, argument)) return false;
    pthread_detach(thread);
    return true;
  }

 private:
  template <typename Resource>
  static bool limited(Resource resource) {
    rlimit limit;
    return getrlimit(resource, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
  }

  template <typename Run>
  static void* call(void* run) {
    (*static_cast<Run*>(run))();
    return nullptr;
  }

  static bool create(pthread_t* thread, void* (*run)(void*), void* argument) {
    // Without a limit a large stack costs nothing, and the C library reuses stacks of the usual
    // size.
    if (!limited(RLIMIT_DATA) && !limited(RLIMIT_AS)) {
      return pthread_create(thread, nullptr, run, argument) == 0;
    }
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return false;
    // This may be refused, because thread-local data takes its room from the stack. Then the
    // default size is used.
    bool started = pthread_attr_setstacksize(&attributes, kStackSize) == 0 &&
                   pthread_create(thread, &attributes, run, argument) == 0;
    pthread_attr_destroy(&attributes);
    return started || pthread_create(thread, nullptr, run, argument) == 0;
  }

  pthread_t thread_{};
  bool started_ = false;
};

}  // namespace recmap
