#include "shuffle.h"

#include "bind.h"

namespace recmap::bind {
namespace {

void undo(const Buffer& planes, size_t item_size, const Array<uint8_t>& items) {
  bool sound = false;
  {
    const nb::gil_scoped_release release;
    sound = unshuffle(as_span(planes), item_size, as_span(items));
  }
  if (!sound) throw nb::value_error("the sizes do not fit");
}

void undo_bits(const Buffer& planes, size_t item_size, size_t block_items,
               const Array<uint8_t>& items) {
  bool sound = false;
  {
    const nb::gil_scoped_release release;
    sound = unbitshuffle(as_span(planes), item_size, block_items, as_span(items));
  }
  if (!sound) throw nb::value_error("the sizes do not fit");
}

uint32_t checksum(const Buffer& data) {
  const nb::gil_scoped_release release;
  return fletcher32(as_span(data));
}

}  // namespace

void bind_shuffle(nb::module_& m) {
  m.def("unshuffle", &undo, nb::arg("planes"), nb::arg("item_size"), nb::arg("items"),
        "Undo the shuffle filter of HDF5.");
  m.def("unbitshuffle", &undo_bits, nb::arg("planes"), nb::arg("item_size"), nb::arg("block_items"),
        nb::arg("items"), "Undo bitshuffle, in blocks of so many items.");
  m.def("fletcher32", &checksum, nb::arg("data"), "Return the checksum of HDF5.");
}

}  // namespace recmap::bind
