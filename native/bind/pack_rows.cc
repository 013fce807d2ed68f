#include "pack_rows.h"

#include <optional>
#include <tuple>

#include "bind.h"

namespace recmap::bind {
namespace {

using Numbers = Array<const int64_t>;
using Found = std::tuple<nb::object, nb::object, nb::object, nb::object>;

Found found(const Places& places) {
  std::span<int64_t> table;
  nb::object finished = new_array<int64_t>(places.finished.size() * 3, "int64", table);
  for (size_t i = 0; i < places.finished.size(); ++i) {
    const FinishedRow& row = places.finished[i];
    std::tie(table[3 * i], table[3 * i + 1], table[3 * i + 2]) =
        std::tie(row.number, row.used, row.after);
  }
  return {copy_array<int64_t>(places.rows, "int64"), copy_array<int64_t>(places.begins, "int64"),
          copy_array<int64_t>(places.numbers, "int64"), finished.attr("reshape")(-1, 3)};
}

Found place(RowFitter& fitter, const Numbers& sizes, const std::optional<Numbers>& ends) {
  Places places;
  bool sound = false;
  {
    const nb::gil_scoped_release release;
    sound = ends ? fitter.place_sorted(as_span(sizes), as_span(*ends), places)
                 : fitter.place(as_span(sizes), places);
  }
  if (!sound) throw nb::value_error("sizes are from 1 to the length of a row");
  return found(places);
}

nb::object finish(RowFitter& fitter) { return copy_array<int64_t>(fitter.finish(), "int64"); }

void restore(RowFitter& fitter, const Numbers& free, const Numbers& sequences) {
  if (!fitter.restore(as_span(free), as_span(sequences))) {
    throw nb::value_error("more is free than a row is long");
  }
}

void copy(const Buffer& values, const Numbers& from, const Numbers& to, const Numbers& sizes,
          size_t item, const Array<uint8_t>& out, size_t threads) {
  bool sound = false;
  {
    const nb::gil_scoped_release release;
    const Copies copies{as_span(from), as_span(to), as_span(sizes)};
    sound = copy_sequences(as_span(values), copies, item, as_span(out), threads);
  }
  if (!sound) throw nb::value_error("sequences must lie within the values and the rows");
}

void number(const Numbers& to, const Numbers& sizes, const Numbers& numbers,
            const Array<int32_t>& positions, const Array<int32_t>& segments, size_t threads) {
  bool sound = false;
  {
    const nb::gil_scoped_release release;
    sound = number_items(as_span(to), as_span(sizes), as_span(numbers), as_span(positions),
                         as_span(segments), threads);
  }
  if (!sound) throw nb::value_error("sequences must lie within the rows");
}

}  // namespace

void bind_pack_rows(nb::module_& m) {
  nb::class_<RowFitter>(m, "RowFitter", "Finds the rows that short sequences are packed into.")
      .def(nb::init<int64_t, size_t>(), nb::arg("length"), nb::arg("open_rows"))
      .def("place", &place, nb::arg("sizes"), nb::arg("ends").none(),
           "Return the row of each sequence, where it begins there, its number among those of the "
           "row, and the rows that are finished: number, items, and how many sequences were placed "
           "by then. With `ends`, the longest of each window are placed first.")
      .def("finish", &finish, "Close the rows that are open, and return how many items each has.")
      .def("restore", &restore, nb::arg("free"), nb::arg("sequences"),
           "Open rows again, in which so many items are free, with so many sequences.");
  m.def("copy_sequences", &copy, nb::arg("values"), nb::arg("starts"), nb::arg("to"),
        nb::arg("sizes"), nb::arg("item"), nb::arg("out"), nb::arg("threads"),
        "Copy sequences of items of `item` bytes to places in the output.");
  m.def("number_items", &number, nb::arg("to"), nb::arg("sizes"), nb::arg("numbers"),
        nb::arg("positions"), nb::arg("segments"), nb::arg("threads"),
        "Write the place of every item in its sequence, and the number of the sequence.");
}

}  // namespace recmap::bind
