#include "gather.h"

#include "bind.h"
#include "prefetch.h"

namespace recmap::bind {
namespace {

void gather(const Buffer& from, size_t row_bytes, const Array<const int64_t>& rows,
            const Array<uint8_t>& to, size_t threads) {
  bool sound = false;
  {
    const nb::gil_scoped_release release;
    sound = gather_rows(as_span(from), row_bytes, as_span(rows), as_span(to), threads);
  }
  if (!sound) throw nb::index_error("a row is not in the array");
}

bool prefetch(const Buffer& array, size_t row_bytes, const Array<const int64_t>& rows) {
  const nb::gil_scoped_release release;
  return prefetch_rows(as_span(array), row_bytes, as_span(rows));
}

}  // namespace

void bind_gather(nb::module_& m) {
  m.def("gather_rows", &gather, nb::arg("source"), nb::arg("row_bytes"), nb::arg("rows"),
        nb::arg("out"), nb::arg("threads"), "Copy rows by number.");
  m.def("prefetch_rows", &prefetch, nb::arg("mapped"), nb::arg("row_bytes"), nb::arg("rows"),
        "Ask the system for rows of a mapped array that are not in memory. Return whether there "
        "were any.");
}

}  // namespace recmap::bind
