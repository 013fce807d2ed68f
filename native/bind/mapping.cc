#include "mapping.h"

#include <cerrno>
#include <system_error>

#include "bind.h"

namespace recmap::bind {
namespace {

// Paths are bytes, because the name of a file need not be text.
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

std::optional<size_t> first_shrunk(const std::vector<const Mapping*>& mappings, bool by_page) {
  const nb::gil_scoped_release release;
  for (size_t i = 0; i < mappings.size(); ++i) {
    const Mapping& mapping = *mappings[i];
    if (by_page ? !mapping.has_all_pages() : mapping.current_size() < mapping.bytes().size())
      return i;
  }
  return std::nullopt;
}

std::vector<std::tuple<nb::bytes, size_t, size_t, uint64_t>> truncated_files(uint64_t since) {
  std::vector<TruncatedFile> files;
  {
    const nb::gil_scoped_release release;
    files = recmap::truncated_files(since);
  }
  std::vector<std::tuple<nb::bytes, size_t, size_t, uint64_t>> told;
  for (const TruncatedFile& file : files) {
    told.emplace_back(nb::bytes(file.name.data(), file.name.size()), file.size, file.end,
                      file.number);
  }
  return told;
}

}  // namespace

void bind_mapping(nb::module_& m) {
  prepare_pages_ahead();
  nb::class_<Mapping>(m, "Mapping", "A file mapped read-only, which holds no descriptor.")
      .def("__init__", &map_file, nb::arg("path"), nb::arg("name"),
           "Map a file. `name` is what users call it.")
      .def_prop_ro(
          "contents",
          [](nb::handle self) {
            const Bytes bytes = nb::cast<const Mapping&>(self).bytes();
            return nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>>(bytes.data(), {bytes.size()},
                                                                      self);
          },
          nb::sig("def contents(self) -> numpy.typing.NDArray[numpy.uint8]"),
          "The whole file, as a view that keeps it mapped.")
      .def("current_size", &Mapping::current_size, nb::call_guard<nb::gil_scoped_release>(),
           "Return how much of the file is still there, at most what was mapped.")
      .def("is_unchanged", &Mapping::is_unchanged, nb::arg("since"),
           nb::call_guard<nb::gil_scoped_release>(),
           "Return whether the file has its size and was last changed at this time, in "
           "nanoseconds. One that was removed or replaced counts as unchanged.")
      .def("load_ahead", &Mapping::load_ahead, nb::arg("begin"), nb::arg("end"),
           nb::call_guard<nb::gil_scoped_release>(),
           "Note that a span is about to be read. If reads are in order, load pages that follow.")
      .def("release_pages", &Mapping::release_pages, nb::arg("begin"), nb::arg("end"),
           nb::call_guard<nb::gil_scoped_release>(),
           "Unmap the pages of a span from this process. The system keeps them cached.")
      .def("begin_scattered_reads", &Mapping::begin_scattered_reads,
           nb::call_guard<nb::gil_scoped_release>(),
           "Let the system read only the pages that are touched, and nothing around them.")
      .def("end_scattered_reads", &Mapping::end_scattered_reads,
           nb::call_guard<nb::gil_scoped_release>(), "End what begin_scattered_reads() began.");
  m.def("first_shrunk", &first_shrunk, nb::arg("mappings"), nb::arg("by_page"),
        "Return the number of the first file that is shorter than when it was mapped, if any. "
        "`by_page` is quicker, but does not notice if only a part of the last page is gone.");
  m.def(
      "enter_guard", [] { return TruncationGuard::enter(), truncations_seen(); },
      "Let this thread survive the truncation of a mapped file that it reads: from now on, "
      "missing pages read as zeros. Return how many truncations were seen so far.");
  m.def(
      "leave_guard", [] { return TruncationGuard::leave(), truncations_seen(); },
      "End what enter_guard() began, on the same thread. Return how many truncations were seen "
      "so far.");
  m.def("last_found", &TruncationGuard::last_found,
        "Return the number of the last truncation that this thread, or one that helped it, ran "
        "into.");
  m.def("truncated_files", &truncated_files, nb::arg("since"),
        "Return name, size, end and number of the mapped files whose truncation was seen after "
        "the first `since`, and of those that are truncated but were not seen, with the number 0.");
}

}  // namespace recmap::bind
