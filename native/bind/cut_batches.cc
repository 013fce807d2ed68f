#include "cut_batches.h"

#include "bind.h"

namespace recmap::bind {
namespace {

using Open = std::tuple<int64_t, double, double>;

std::pair<nb::object, Open> cut(const Array<const double>& costs, double limit, int64_t most_rows,
                                bool padded, int64_t first, const Open& before) {
  OpenBatch open{std::get<0>(before), std::get<1>(before), std::get<2>(before)};
  std::vector<int64_t> begins;
  {
    const nb::gil_scoped_release release;
    cut_batches(as_span(costs), {limit, most_rows, padded}, first, open, begins);
  }
  return {copy_array<int64_t>(begins, "int64"), Open(open.rows, open.total, open.largest)};
}

std::pair<nb::object, nb::object> cut_by_bucket(const Array<const double>& costs,
                                                const Array<const int64_t>& buckets, size_t count,
                                                double limit, int64_t most_rows, bool padded) {
  std::vector<int64_t> rows;
  std::vector<int64_t> ends;
  bool sound = false;
  {
    const nb::gil_scoped_release release;
    rows.reserve(costs.size());
    sound = cut_buckets(as_span(costs), as_span(buckets), count, {limit, most_rows, padded}, rows,
                        ends);
  }
  if (!sound) throw nb::value_error("a bucket for each row, all below their number");
  return {copy_array<int64_t>(rows, "int64"), copy_array<int64_t>(ends, "int64")};
}

}  // namespace

void bind_cut_batches(nb::module_& m) {
  m.def("cut_batches", &cut, nb::arg("costs"), nb::arg("limit"), nb::arg("most_rows"),
        nb::arg("padded"), nb::arg("first"), nb::arg("open"),
        "Return the rows that begin a new batch, and the rows, cost and largest cost of the last.");
  m.def("cut_buckets", &cut_by_bucket, nb::arg("costs"), nb::arg("buckets"), nb::arg("count"),
        nb::arg("limit"), nb::arg("most_rows"), nb::arg("padded"),
        "Return the rows batch by batch, where those of a batch share a bucket, and where each "
        "batch ends.");
}

}  // namespace recmap::bind
