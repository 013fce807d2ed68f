#include "gather.h"

#include <optional>

#include "bind.h"
#include "prefetch.h"

namespace recmap::bind {
namespace {

void gather(const Buffer& from, size_t row_bytes, const Array<const int64_t>& rows,
            const Array<uint8_t>& to, size_t threads, size_t shift,
            const std::optional<Array<uint8_t>>& shifted) {
  bool sound = false;
  {
    const nb::gil_scoped_release release;
    const Shifted later{shift, shifted ? as_span(*shifted) : std::span<uint8_t>()};
    sound = gather_rows(as_span(from), row_bytes, as_span(rows), as_span(to), threads, later);
  }
  if (!sound) throw nb::index_error("a row is not in the array");
}

bool prefetch(const Buffer& array, size_t row_bytes, const Array<const int64_t>& rows) {
  const nb::gil_scoped_release release;
  return prefetch_rows(as_span(array), row_bytes, as_span(rows));
}

using Numbers = Array<const int64_t>;

nb::object offsets(const Numbers& offsets, const Numbers& rows) {
  const ChosenRows chosen{as_span(offsets), as_span(rows)};
  if (!are_rows(chosen)) throw nb::index_error("a row is not in the column");
  std::span<int64_t> to;
  nb::object made = new_array<int64_t>(rows.size() + 1, "int64", to);
  if (!gather_offsets(chosen, to)) throw nb::value_error("offsets must ascend");
  return made;
}

void ragged(const Buffer& values, const Numbers& offsets, const Numbers& rows, size_t item,
            const Numbers& to, const Array<uint8_t>& out, size_t threads) {
  bool sound = false;
  {
    const nb::gil_scoped_release release;
    const ChosenRows chosen{as_span(offsets), as_span(rows)};
    sound = gather_ragged(as_span(values), chosen, item, as_span(to), as_span(out), threads);
  }
  if (!sound) throw nb::value_error("rows must lie within the values and the output");
}

// The boxes of a call, with what they refer to.
struct BoundBoxes {
  using Axis = std::tuple<size_t, size_t, size_t>;

  BoundBoxes(const std::vector<Buffer>& files, const Owners& owners,
             const Array<const int64_t>& offsets, const std::vector<Axis>& steps, size_t run) {
    for (const Buffer& file : files) sources.push_back(as_span(file));
    for (const auto& [count, from, to] : steps) axes.push_back({count, from, to});
    const auto owned = owners ? as_span(*owners) : std::span<const uint32_t>{};
    boxes = {sources, owned, as_span(offsets), axes, run};
  }

  std::vector<Bytes> sources;
  std::vector<BoxAxis> axes;
  Boxes boxes{};
};

void gather_all(const std::vector<Buffer>& sources, const Owners& owners,
                const Array<const int64_t>& offsets, const std::vector<BoundBoxes::Axis>& axes,
                size_t run, const Array<uint8_t>& to, size_t stride, size_t at, size_t threads) {
  const BoundBoxes bound(sources, owners, offsets, axes, run);
  bool sound = false;
  {
    const nb::gil_scoped_release release;
    sound = gather_boxes(bound.boxes, as_span(to), stride, at, threads);
  }
  if (!sound) throw nb::index_error("a part is not in its file");
}

bool prefetch_all(const std::vector<Buffer>& sources, const Owners& owners,
                  const Array<const int64_t>& offsets, const std::vector<BoundBoxes::Axis>& axes,
                  size_t run) {
  const BoundBoxes bound(sources, owners, offsets, axes, run);
  const nb::gil_scoped_release release;
  return prefetch_boxes(bound.boxes);
}

}  // namespace

void bind_gather(nb::module_& m) {
  m.def("gather_rows", &gather, nb::arg("source"), nb::arg("row_bytes"), nb::arg("rows"),
        nb::arg("out"), nb::arg("threads"), nb::arg("shift") = 0, nb::arg("shifted") = nb::none(),
        "Copy rows by number, and the same, `shift` bytes later, to `shifted`.");
  m.def("gather_offsets", &offsets, nb::arg("offsets"), nb::arg("rows"),
        "Return the offsets of rows by number. Raise IndexError if there is no such row.");
  m.def("gather_ragged", &ragged, nb::arg("values"), nb::arg("offsets"), nb::arg("rows"),
        nb::arg("item"), nb::arg("to"), nb::arg("out"), nb::arg("threads"),
        "Copy ragged rows by number, of items of `item` bytes, to the offsets `to` in the output.");
  m.def("prefetch_rows", &prefetch, nb::arg("mapped"), nb::arg("row_bytes"), nb::arg("rows"),
        "Ask the system for rows of a mapped array that are not in memory. Return whether there "
        "were any.");
  m.def(
      "gather_boxes", &gather_all, nb::arg("sources"), nb::arg("owners").none(), nb::arg("offsets"),
      nb::arg("axes"), nb::arg("run"), nb::arg("out"), nb::arg("stride"), nb::arg("at"),
      nb::arg("threads"),
      "Copy boxes of one shape, each to `at` in its row of `stride` bytes. An axis is a count and "
      "the bytes between its parts, before and after; offsets below 0 are left out.");
  m.def("prefetch_boxes", &prefetch_all, nb::arg("sources"), nb::arg("owners").none(),
        nb::arg("offsets"), nb::arg("axes"), nb::arg("run"),
        "Ask the system for boxes of mapped files that are not in memory. Return whether there "
        "were any.");
}

}  // namespace recmap::bind
