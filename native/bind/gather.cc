#include "gather.h"

#include <algorithm>

#include "bind.h"
#include "permutation.h"

namespace recmap::bind {
namespace {

void permute_numbers(uint64_t n, const Array<const uint32_t>& keys, bool back,
                     const Array<int64_t>& numbers) {
  bool sound = false;
  {
    const nb::gil_scoped_release release;
    sound =
        permute(n, as_span(keys), back ? Direction::kBack : Direction::kForth, as_span(numbers));
  }
  if (!sound) throw nb::index_error("a number is not in the permutation");
}

void gather(const Buffer& from, size_t row_bytes, const Array<const int64_t>& rows,
            const Array<uint8_t>& to, size_t threads) {
  bool sound = false;
  {
    const nb::gil_scoped_release release;
    sound = gather_rows(as_span(from), row_bytes, as_span(rows), as_span(to), threads);
  }
  if (!sound) throw nb::index_error("a row is not in the array");
}

}  // namespace

void bind_gather(nb::module_& m) {
  m.def("permute", &permute_numbers, nb::arg("n"), nb::arg("keys"), nb::arg("back"),
        nb::arg("numbers"), "Replaces positions by rows of a random order of n, or back.");
  m.def("gather_rows", &gather, nb::arg("source"), nb::arg("row_bytes"), nb::arg("rows"),
        nb::arg("out"), nb::arg("threads"), "Copies rows by number.");
}

}  // namespace recmap::bind
