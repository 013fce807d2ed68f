#include "moments.h"

#include <algorithm>

#include "bind.h"
#include "thin.h"

namespace recmap::bind {
namespace {

// Throws unless values are whole groups of channels.
void check_groups(size_t values, size_t channels, size_t inner) {
  if (channels == 0 || inner == 0 || values % channels != 0 || values / channels % inner != 0) {
    throw nb::value_error("the values are not whole groups of channels");
  }
}

using Values = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Limits = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Returns false if the values are of another type.
template <typename T>
bool find_as(const Values& values, size_t inner, const Array<int64_t>& counts,
             const Array<double>& sums, const Limits& limits, size_t step,
             const Array<const uint32_t>& places, const Limits& drawn) {
  if (values.dtype() != nb::dtype<T>() || limits.dtype() != nb::dtype<T>() ||
      drawn.dtype() != nb::dtype<T>()) {
    return false;
  }
  const nb::gil_scoped_release release;
  const size_t n = sums.size() / 2;
  const std::span<int64_t> c = as_span(counts);
  const std::span<double> s = as_span(sums);
  const std::span<T> l(static_cast<T*>(limits.data()), 2 * n);
  const Moments<T> moments{c.subspan(0, n),     c.subspan(n, n), c.subspan(2 * n, n),
                           c.subspan(3 * n, n), s.subspan(0, n), s.subspan(n, n),
                           l.subspan(0, n),     l.subspan(n, n)};
  find_moments<T>({static_cast<const T*>(values.data()), values.size()}, inner, moments,
                  {as_span(places), step, {static_cast<T*>(drawn.data()), drawn.size()}});
  return true;
}

template <typename... T>
bool find_as_any(const Values& values, size_t inner, const Array<int64_t>& counts,
                 const Array<double>& sums, const Limits& limits, size_t step,
                 const Array<const uint32_t>& places, const Limits& drawn) {
  return (find_as<T>(values, inner, counts, sums, limits, step, places, drawn) || ...);
}

void find(const Values& values, size_t inner, const Array<int64_t>& counts,
          const Array<double>& sums, const Limits& limits, size_t step,
          const Array<const uint32_t>& places, const Limits& drawn) {
  const size_t n = sums.size() / 2;
  check_groups(values.size(), n, inner);
  if (counts.size() != 4 * n || sums.size() != 2 * n || limits.size() != 2 * n) {
    throw nb::value_error("each channel has four counts, two sums and two limits");
  }
  const std::span<const uint32_t> at = as_span(places);
  const size_t each = values.size() / n, last = at.size() - 1;
  if (drawn.size() != at.size() * n ||
      std::ranges::any_of(at, [step](uint32_t place) { return place >= step; }) ||
      (!at.empty() && (last > each / step || last * step + at.back() >= each))) {
    throw nb::value_error("the places are not in the channels, or the sample has no room");
  }
  if (!find_as_any<int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t, float, double>(
          values, inner, counts, sums, limits, step, places, drawn)) {
    throw nb::value_error("values, limits and drawn have one type, with 2, 4 or 8 bytes");
  }
}

void count(const Buffer& values, size_t inner, const Array<int64_t>& counts) {
  check_groups(values.size(), counts.size() / 256, inner);
  if (counts.size() % 256 != 0) throw nb::value_error("each channel has 256 counts");
  const nb::gil_scoped_release release;
  count_bytes(as_span(values), inner, as_span(counts));
}

// Returns false if the values are of another type.
template <typename T>
bool thin_as(const Values& rows, const Buffer& first, size_t step, const Limits& out) {
  if (rows.dtype() != nb::dtype<T>() || out.dtype() != nb::dtype<T>()) return false;
  const nb::gil_scoped_release release;
  thin_lanes<T>({static_cast<const T*>(rows.data()), rows.size()}, as_span(first), step,
                {static_cast<T*>(out.data()), out.size()});
  return true;
}

template <typename... T>
bool thin_as_any(const Values& rows, const Buffer& first, size_t step, const Limits& out) {
  return (thin_as<T>(rows, first, step, out) || ...);
}

void thin(const Values& rows, const Buffer& first, size_t step, const Limits& out) {
  const std::span<const uint8_t> firsts = as_span(first);
  if (step == 0 || kThinGroup % step != 0 || rows.size() != firsts.size() * kThinGroup ||
      out.size() != rows.size() / step ||
      std::ranges::any_of(firsts, [step](uint8_t each) { return each >= step; })) {
    throw nb::value_error("the rows are not whole groups, or there is no room for their part");
  }
  if (!thin_as_any<int32_t, uint32_t, int64_t, uint64_t, float, double>(rows, first, step, out)) {
    throw nb::value_error("the rows and their part have one type, with 4 or 8 bytes");
  }
}

}  // namespace

void bind_moments(nb::module_& m) {
  m.def("find_moments", &find, nb::arg("values"), nb::arg("inner"), nb::arg("counts").noconvert(),
        nb::arg("sums").noconvert(), nb::arg("limits").noconvert(), nb::arg("step"),
        nb::arg("places"), nb::arg("drawn").noconvert(),
        nb::sig("def find_moments(values: numpy.typing.NDArray[typing.Any], inner: int, "
                "counts: numpy.typing.NDArray[numpy.int64], "
                "sums: numpy.typing.NDArray[numpy.float64], "
                "limits: numpy.typing.NDArray[typing.Any], "
                "step: int, places: numpy.typing.NDArray[numpy.uint32], "
                "drawn: numpy.typing.NDArray[typing.Any]) -> None"),
        "Count finite, NaN, infinite and negative infinite values of each channel, find the mean, "
        "the squared distances from it, the least and the greatest, and copy the values at the "
        "places that were drawn.");
  m.def("count_bytes", &count, nb::arg("values"), nb::arg("inner"), nb::arg("counts").noconvert(),
        "Add how often each byte occurs in each channel.");
  m.def("thin_lanes", &thin, nb::arg("rows"), nb::arg("first"), nb::arg("step"), nb::arg("out"),
        nb::sig("def thin_lanes(rows: numpy.typing.NDArray[typing.Any], first: "
                "numpy.typing.NDArray[numpy.uint8], step: int, "
                "out: numpy.typing.NDArray[typing.Any]) -> None"),
        "Sort each lane of 256 runs of lanes, and keep one of every ``step`` values of it.");
}

}  // namespace recmap::bind
