#if defined(__linux__)
#include <fcntl.h>
#endif

#include "bind.h"

namespace recmap::bind {
namespace {

// One call for many writes is quicker than a reservation at each. Not posix_fallocate, which
// writes zeros where the file system cannot reserve.
bool reserve(int file, int64_t offset, int64_t size) {
#if defined(__linux__)
  const nb::gil_scoped_release release;
  return fallocate(file, FALLOC_FL_KEEP_SIZE, offset, size) == 0;
#else
  return static_cast<void>(file), static_cast<void>(offset), static_cast<void>(size), false;
#endif
}

}  // namespace

void bind_reserve(nb::module_& m) {
  m.def("reserve", &reserve, nb::arg("file"), nb::arg("offset"), nb::arg("size"),
        "Reserve room on the disk behind the end of a file. Return False if that is not possible.");
}

}  // namespace recmap::bind
