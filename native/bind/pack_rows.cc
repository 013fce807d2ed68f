#include "pack_rows.h"

#include "bind.h"

namespace recmap::bind {
namespace {

using Numbers = Array<const int64_t>;
using Found = std::tuple<nb::object, nb::object, nb::object, nb::object>;

Found found(const Places& places) {
  return {copy_array<int64_t>(places.rows, "int64"), copy_array<int64_t>(places.begins, "int64"),
          copy_array<int64_t>(places.finished, "int64"),
          copy_array<int64_t>(places.after, "int64")};
}

Found place(RowFitter& fitter, const Numbers& sizes, bool sorted) {
  Places places;
  bool sound = false;
  {
    const nb::gil_scoped_release release;
    sound =
        sorted ? fitter.place_sorted(as_span(sizes), places) : fitter.place(as_span(sizes), places);
  }
  if (!sound) throw nb::value_error("sizes are from 1 to the length of a row");
  return found(places);
}

nb::object finish(RowFitter& fitter) {
  Places places;
  fitter.finish(places);
  return copy_array<int64_t>(places.finished, "int64");
}

void restore(RowFitter& fitter, const Numbers& free) {
  if (!fitter.restore(as_span(free))) throw nb::value_error("more is free than a row is long");
}

void copy(const Buffer& values, const Numbers& from, const Numbers& to, const Numbers& sizes,
          size_t item, const Array<uint8_t>& out) {
  bool sound = false;
  {
    const nb::gil_scoped_release release;
    const Copies copies{as_span(from), as_span(to), as_span(sizes)};
    sound = copy_sequences(as_span(values), copies, item, as_span(out));
  }
  if (!sound) throw nb::value_error("sequences must lie within the values and the rows");
}

void number(const Numbers& to, const Numbers& sizes, const Numbers& numbers,
            const Array<int32_t>& positions, const Array<int32_t>& segments) {
  bool sound = false;
  {
    const nb::gil_scoped_release release;
    sound = number_items(as_span(to), as_span(sizes), as_span(numbers), as_span(positions),
                         as_span(segments));
  }
  if (!sound) throw nb::value_error("sequences must lie within the rows");
}

}  // namespace

void bind_pack_rows(nb::module_& m) {
  nb::class_<RowFitter>(m, "RowFitter", "Finds the rows that short sequences are packed into.")
      .def(nb::init<int64_t, size_t>(), nb::arg("length"), nb::arg("open_rows"))
      .def(
          "place", &place, nb::arg("sizes"), nb::arg("sorted"),
          "Return the row of each sequence, where it begins there, the rows that are finished, and "
          "how many sequences were placed by then.")
      .def("finish", &finish, "Return the rows that are still open, and close them.")
      .def("restore", &restore, nb::arg("free"),
           "Open rows 0, 1, 2, ... again, in which so many items are free.");
  m.def("copy_sequences", &copy, nb::arg("values"), nb::arg("starts"), nb::arg("to"),
        nb::arg("sizes"), nb::arg("item"), nb::arg("out"),
        "Copy sequences of items of `item` bytes to places in the output.");
  m.def("number_items", &number, nb::arg("to"), nb::arg("sizes"), nb::arg("numbers"),
        nb::arg("positions"), nb::arg("segments"),
        "Write the place of every item in its sequence, and the number of the sequence.");
}

}  // namespace recmap::bind
