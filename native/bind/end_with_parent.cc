#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "bind.h"
#include "start_thread.h"

namespace recmap::bind {
namespace {

pid_t parent = 0;

void* watch(void*) {
  const timespec pause{0, 200'000'000};
  while (getppid() == parent) nanosleep(&pause, nullptr);
  kill(getpid(), SIGKILL);
  return nullptr;
}

// Not prctl(PR_SET_PDEATHSIG), which also fires when the thread that forked ends; and not a Python
// thread, which may wait for the GIL for ever.
bool end_with_parent(int64_t process) {
  parent = static_cast<pid_t>(process);
  pthread_t thread;
  return start_thread(&watch, nullptr, thread);
}

}  // namespace

void bind_end_with_parent(nb::module_& m) {
  m.def("end_with_parent", &end_with_parent, nb::arg("process"),
        "Kill this process as soon as `process` is no longer its parent, whatever it is doing.\n\n"
        "Return False if the thread that watches for that cannot be started.");
}

}  // namespace recmap::bind
