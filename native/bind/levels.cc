#include "levels.h"

#include "bind.h"

namespace recmap::bind {
namespace {

int64_t count_zeros(const Buffer& levels, int64_t count, int bits) {
  if (bits < 1 || bits > 8) throw nb::value_error("levels have 1 to 8 bits");
  const nb::gil_scoped_release release;
  return count_zero_levels(as_span(levels), count, bits);
}

}  // namespace

void bind_levels(nb::module_& m) {
  m.def("count_zero_levels", &count_zeros, nb::arg("levels"), nb::arg("count"), nb::arg("bits"),
        nb::sig("def count_zero_levels(levels: numpy.typing.NDArray[numpy.uint8], count: int, "
                "bits: int) -> int"),
        "Count the zeros among the levels of a Parquet page; -1 if it has fewer levels.");
}

}  // namespace recmap::bind
