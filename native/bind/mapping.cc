#include <fcntl.h>
#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <system_error>

#include "bind.h"
#include "mapping.h"

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

  explicit Pages(Bytes bytes) {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto data = reinterpret_cast<uintptr_t>(bytes.data());
    const uintptr_t first = data / page * page;
    begin = reinterpret_cast<uint8_t*>(first);
    size = data + bytes.size() - first;
  }

  bool first_is_in_memory() const {
    unsigned char there = 0;
    return mincore(begin, 1, &there) != 0 || (there & 1) != 0;
  }

  void will_need() const { madvise(begin, size, MADV_WILLNEED); }
};
#endif

// Asks the system for stretches of mapped files before they are read one by one, so that
// the disk works on many at once. A few tell whether there is anything to ask for: most
// often all of it is in memory, and asking costs more than reading.
template <typename Stretch>
bool ask_for(size_t count, Stretch&& stretch) {
#if defined(__linux__)
  constexpr size_t kTried = 8;
  const size_t step = std::max<size_t>(1, count / kTried);
  bool absent = false;
  for (size_t i = 0; i < count && !absent; i += step) {
    const Bytes bytes = stretch(i);
    absent = !bytes.empty() && !Pages(bytes).first_is_in_memory();
  }
  for (size_t i = 0; i < count && absent; ++i) {
    if (const Bytes bytes = stretch(i); !bytes.empty()) Pages(bytes).will_need();
  }
  return absent;
#else
  return static_cast<void>(count), static_cast<void>(stretch), false;
#endif
}

bool will_need(const Buffer& mapped, size_t row_bytes, const Array<const int64_t>& rows) {
  const Bytes bytes = as_span(mapped);
  const auto wanted = as_span(rows);
  if (row_bytes == 0) return false;
  const nb::gil_scoped_release release;
  return ask_for(wanted.size(), [&](size_t i) {
    const auto row = static_cast<uint64_t>(wanted[i]);
    return row < bytes.size() / row_bytes ? bytes.subspan(row * row_bytes, row_bytes) : Bytes{};
  });
}

bool will_need_records(const Files& files, const Owners& owners, const Array<const int64_t>& rows) {
  // Of longer stretches of several records only the beginning, from where the row is looked
  // for.
  constexpr size_t kMost = size_t{4} << 20;
  const RowFiles places = row_files(files, owners, rows.size());
  const auto wanted = as_span(rows);
  const nb::gil_scoped_release release;
  return ask_for(wanted.size(), [&](size_t i) {
    const KnownFile& file = files.known[places.owner(i)];
    const Bytes bytes = stretch_of(file, static_cast<uint64_t>(wanted[i]));
    const auto marks = file.mark_rows;
    const bool whole = file.stride != 0 || (marks.size() > 1 && marks[1] == marks[0] + 1);
    return whole || bytes.size() <= kMost ? bytes : bytes.first(kHeaderSize);
  });
}

// Paths are bytes: names of files need not be text.
void map_file(Mapping* place, const nb::bytes& path, const nb::bytes& name) {
  const std::string at(path.c_str(), path.size()), called(name.c_str(), name.size());
  int failure = 0;
  {
    const nb::gil_scoped_release release;
    try {
      new (place) Mapping(at, called);
    } catch (const std::system_error& e) {
      failure = e.code().value();
    }
  }
  if (failure != 0) {
    errno = failure;
    PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError,
                                         nb::module_::import_("os").attr("fsdecode")(path).ptr());
    throw nb::python_error();
  }
}

size_t size_now(const Mapping& mapping) {
  const nb::gil_scoped_release release;
  return mapping.size_now();
}

// The first of several files that is shorter than it was, if any.
std::optional<size_t> first_shrunk(const std::vector<const Mapping*>& mappings, bool by_page) {
  const nb::gil_scoped_release release;
  for (size_t i = 0; i < mappings.size(); ++i) {
    const Mapping& mapping = *mappings[i];
    if (by_page ? !mapping.has_all_pages() : mapping.size_now() < mapping.bytes().size()) return i;
  }
  return std::nullopt;
}

std::optional<std::tuple<nb::bytes, size_t, size_t>> truncated_file(uint64_t since) {
  const std::optional<TruncatedFile> file = recmap::truncated_file(since);
  if (!file) return std::nullopt;
  return std::tuple(nb::bytes(file->name.data(), file->name.size()), file->size, file->end);
}

}  // namespace

void bind_mapping(nb::module_& m) {
  nb::class_<Mapping>(m, "Mapping", "A file mapped read-only, which holds no descriptor.")
      .def("__init__", &map_file, nb::arg("path"), nb::arg("name"))
      .def_prop_ro(
          "contents",
          [](nb::handle self) {
            const Bytes bytes = nb::cast<const Mapping&>(self).bytes();
            return nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>>(bytes.data(), {bytes.size()},
                                                                      self);
          },
          nb::sig("def contents(self) -> numpy.typing.NDArray[numpy.uint8]"),
          "All of it, as a view that keeps it mapped.")
      .def("size_now", &size_now, "How much of the file is still there, at most what was mapped.")
      .def("have_read", &Mapping::have_read, nb::arg("begin"), nb::arg("end"),
           "Gives back the pages of a stretch; the system keeps them cached.");
  m.def("first_shrunk", &first_shrunk, nb::arg("mappings"), nb::arg("by_page"),
        "The first of several files that is shorter than when it was mapped, if any. By page is "
        "quicker, and does not notice if only a part of the last page is gone.");
  m.def(
      "enter_guard", [] { return TruncationGuard::enter(), truncations_seen(); },
      "From now on this thread survives that a mapped file is cut while it is read: what is "
      "missing reads as zeros. How often that has happened so far.");
  m.def(
      "leave_guard", [] { return TruncationGuard::leave(), truncations_seen(); },
      "The end of it, in the same thread. How often it has happened so far.");
  m.def("truncated_file", &truncated_file, nb::arg("since"),
        "Name, size and end of the mapped file that was found to be cut last, but not before "
        "there were so many cuts.");
  m.def("reserve", &reserve, nb::arg("file"), nb::arg("offset"), nb::arg("size"),
        "Reserves room on the disk behind the end of a file; False if that cannot be had.");
  m.def("will_need", &will_need, nb::arg("mapped"), nb::arg("row_bytes"), nb::arg("rows"),
        "Asks for rows of a mapped file that are not in memory; whether there were such.");
  m.def(
      "will_need_records", &will_need_records, nb::arg("files"), nb::arg("owners").none(),
      nb::arg("rows"),
      nb::sig(
          "def will_need_records(files: Files, owners: numpy.typing.NDArray[numpy.uint32] | None, "
          "rows: numpy.typing.NDArray[numpy.int64]) -> bool"),
      "The same for records of several files, each with its number in the file its owner says.");
}

}  // namespace recmap::bind
