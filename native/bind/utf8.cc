#include "utf8.h"

#include "bind.h"

namespace recmap::bind {
namespace {

int64_t find_invalid(const Buffer& values, const Array<const int64_t>& offsets) {
  int64_t row = 0;
  {
    const nb::gil_scoped_release release;
    row = first_invalid_utf8(as_span(values), as_span(offsets));
  }
  if (row < -1) throw nb::value_error("offsets must ascend and end inside the values");
  return row;
}

}  // namespace

void bind_utf8(nb::module_& m) {
  m.def("first_invalid_utf8", &find_invalid, nb::arg("values"), nb::arg("offsets"),
        "Return the first row that is not UTF-8 by itself; -1 if all rows are.");
}

}  // namespace recmap::bind
