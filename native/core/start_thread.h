// A thread with a small stack. The default of 8 MB counts against a limit on the memory of the
// process whether it is used or not, and what runs here needs little.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstddef>

namespace recmap {

inline constexpr size_t kSmallStack = size_t{512} << 10;

// Signals are for the threads of the program, which may wait for them. Those that a thread raises
// itself must not be blocked.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int signal : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
      sigdelset(&blocked, signal);
    }
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

// Calls run(argument) on a new thread that nobody waits for, and that takes no signals. False if
// the system does not let another thread start.
inline bool start_thread(void* (*run)(void*), void* argument, pthread_t& thread) {
  const auto limited = [](auto resource) {
    rlimit limit;
    return getrlimit(resource, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
  };
  const BlockedSignals blocked;
  bool started = false;
  // Without a limit a large stack costs nothing.
  if (limited(RLIMIT_DATA) || limited(RLIMIT_AS)) {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return false;
    // This may be refused, because thread-local data takes its room from the stack. Then the
    // default size is used.
    started = pthread_attr_setstacksize(&attributes, kSmallStack) == 0 &&
              pthread_create(&thread, &attributes, run, argument) == 0;
    pthread_attr_destroy(&attributes);
  }
  if (!started && pthread_create(&thread, nullptr, run, argument) != 0) return false;
  pthread_detach(thread);
  return true;
}

}  // namespace recmap
