#include "permutation.h"

#include "bind.h"

namespace recmap::bind {
namespace {

void permute_numbers(uint64_t n, const Array<const uint32_t>& keys, bool back,
                     const Array<int64_t>& numbers, size_t threads) {
  const Direction direction = back ? Direction::kBack : Direction::kForth;
  bool sound = false;
  {
    const nb::gil_scoped_release release;
    sound = permute(n, as_span(keys), direction, as_span(numbers), threads);
  }
  if (!sound) throw nb::index_error("a number is not in the permutation");
}

}  // namespace

void bind_permutation(nb::module_& m) {
  m.def("permute", &permute_numbers, nb::arg("n"), nb::arg("keys"), nb::arg("back"),
        nb::arg("numbers"), nb::arg("threads") = 1,
        "Replace positions by row numbers in a random order of n rows, or back.");
}

}  // namespace recmap::bind
