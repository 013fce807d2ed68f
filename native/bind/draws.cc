#include "draws.h"

#include "bind.h"

namespace recmap::bind {
namespace {

void draw_numbers(const Array<const uint64_t>& slots, uint64_t key, const Array<int64_t>& positions,
                  size_t threads) {
  bool sound = false;
  {
    const nb::gil_scoped_release release;
    sound = draw_by_slots(as_span(slots), key, as_span(positions), threads);
  }
  if (!sound) throw nb::value_error("there are no slots to draw from");
}

}  // namespace

void bind_draws(nb::module_& m) {
  m.def("draw_by_slots", &draw_numbers, nb::arg("slots"), nb::arg("key"), nb::arg("positions"),
        nb::arg("threads") = 1, "Replace positions by the rows that an alias table draws there.");
}

}  // namespace recmap::bind
