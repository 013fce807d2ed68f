#include "pad.h"

#include "bind.h"

namespace recmap::bind {
namespace {

void pad(const Buffer& values, const Array<const int64_t>& offsets, const Buffer& fill,
         bool fill_left, bool keep_last, const Array<uint8_t>& out) {
  bool sound = false;
  {
    const nb::gil_scoped_release release;
    sound = pad_rows(as_span(values), as_span(offsets), as_span(fill),
                     {.fill_left = fill_left, .keep_last = keep_last}, as_span(out));
  }
  if (!sound) throw nb::value_error("offsets must ascend and end inside the values");
}

}  // namespace

void bind_pad(nb::module_& m) {
  m.def("pad_rows", &pad, nb::arg("values"), nb::arg("offsets"), nb::arg("fill"),
        nb::arg("fill_left"), nb::arg("keep_last"), nb::arg("out"),
        "Write ragged rows as rows of one length. `fill` is one item; all have its size.");
}

}  // namespace recmap::bind
