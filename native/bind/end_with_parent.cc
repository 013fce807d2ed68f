#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "bind.h"
#include "small_stack_thread.h"

namespace recmap::bind {
namespace {

pid_t parent = 0;

void* watch(void*) {
  // Signals are for the threads of Python.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  const timespec pause{0, 200'000'000};
  while (getppid() == parent) nanosleep(&pause, nullptr);
  kill(getpid(), SIGKILL);
  return nullptr;
}

// Not prctl(PR_SET_PDEATHSIG), which also fires when the thread that forked ends; and
// not a thread of Python's, which may wait for the interpreter lock for ever.
bool end_with_parent(int64_t process) {
  parent = static_cast<pid_t>(process);
  return SmallStackThread::start_detached(&watch, nullptr);
}

}  // namespace

void bind_end_with_parent(nb::module_& m) {
  m.def("end_with_parent", &end_with_parent, nb::arg("process"),
        "Kill this process when `process` is no longer its parent, whatever it does then.\n\n"
        "Returns False if the thread that watches cannot be started.");
}

}  // namespace recmap::bind
