#include <fcntl.h>
#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <algorithm>

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

#if defined(__linux__)
// The pages of a stretch of mapped memory.
struct Pages {
  uint8_t* begin;
  size_t size;

  Pages(const uint8_t* data, size_t bytes) {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto first = reinterpret_cast<uintptr_t>(data) / page * page;
    begin = reinterpret_cast<uint8_t*>(first);
    size = reinterpret_cast<uintptr_t>(data) + bytes - first;
  }

  bool first_is_in_memory() const {
    unsigned char there = 0;
    return mincore(begin, 1, &there) != 0 || (there & 1) != 0;
  }

  void will_need() const { madvise(begin, size, MADV_WILLNEED); }
};
#endif

// Asks the system for rows of a mapped file before they are read one by one, so that the
// disk works on many at once. A few rows tell whether there is anything to ask for: most
// often all of it is in memory, and asking costs more than reading.
bool will_need(const Buffer& mapped, size_t row_bytes, const Array<const int64_t>& rows) {
#if defined(__linux__)
  constexpr size_t kTried = 8;
  const auto bytes = as_span(mapped);
  const auto wanted = as_span(rows);
  if (row_bytes == 0 || wanted.empty()) return false;
  const size_t count = bytes.size() / row_bytes;
  const nb::gil_scoped_release release;
  const auto pages = [&](int64_t row) {
    return Pages(bytes.data() + static_cast<size_t>(row) * row_bytes, row_bytes);
  };
  const auto inside = [&](int64_t row) { return static_cast<uint64_t>(row) < count; };
  const size_t step = std::max<size_t>(1, wanted.size() / kTried);
  bool absent = false;
  for (size_t i = 0; i < wanted.size() && !absent; i += step) {
    absent = inside(wanted[i]) && !pages(wanted[i]).first_is_in_memory();
  }
  if (!absent) return false;
  for (const int64_t row : wanted) {
    if (inside(row)) pages(row).will_need();
  }
  return true;
#else
  return static_cast<void>(mapped), static_cast<void>(row_bytes), static_cast<void>(rows), false;
#endif
}

}  // namespace

void bind_files(nb::module_& m) {
  m.def("reserve", &reserve, nb::arg("file"), nb::arg("offset"), nb::arg("size"),
        "Reserves room on the disk behind the end of a file; False if that cannot be had.");
  m.def("will_need", &will_need, nb::arg("mapped"), nb::arg("row_bytes"), nb::arg("rows"),
        "Asks for rows of a mapped file that are not in memory; whether there were such.");
}

}  // namespace recmap::bind
