#include <fcntl.h>

#include "bind.h"

namespace recmap::bind {
namespace {

// Blocks for bytes that will be written soon: one call for many is quicker than one
// at each write. Not posix_fallocate, which writes zeros where the file system cannot.
bool reserve(int file, int64_t offset, int64_t size) {
#if defined(__linux__)
  const nb::gil_scoped_release release;
  return fallocate(file, FALLOC_FL_KEEP_SIZE, offset, size) == 0;
#else
  return static_cast<void>(file), static_cast<void>(offset), static_cast<void>(size), false;
#endif
}

}  // namespace

void bind_files(nb::module_& m) {
  m.def("reserve", &reserve, nb::arg("file"), nb::arg("offset"), nb::arg("size"),
        "Reserves room on the disk behind the end of a file; False if that cannot be had.");
}

}  // namespace recmap::bind
