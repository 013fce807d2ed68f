#include "parquet.h"

#include "bind.h"

namespace recmap::bind {
namespace {

// A row for each column chunk, of as many numbers as a ParquetChunk has.
nb::object chunks(const Buffer& footer) {
  std::optional<std::vector<ParquetChunk>> found;
  {
    const nb::gil_scoped_release release;
    found = read_parquet_chunks(as_span(footer));
  }
  if (!found) throw nb::value_error("it cannot be read");
  constexpr size_t kNumbers = sizeof(ParquetChunk) / sizeof(int64_t);
  const auto* const numbers = reinterpret_cast<const int64_t*>(found->data());
  return copy_array<int64_t>({numbers, found->size() * kNumbers}, "int64")
      .attr("reshape")(-1, kNumbers);
}

using Page = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>;

Page page(const Buffer& bytes) {
  const std::optional<ParquetPage> found = read_parquet_page(as_span(bytes));
  if (!found) throw nb::value_error("the header of a page cannot be read");
  return {found->header, found->kind, found->size,    found->stored,
          found->values, found->rows, found->encoding};
}

int64_t count_zeros(const Buffer& levels, int64_t count, int bits) {
  if (bits < 1 || bits > 8) throw nb::value_error("levels have 1 to 8 bits");
  const nb::gil_scoped_release release;
  return count_zero_levels(as_span(levels), count, bits);
}

size_t expand_front(const Buffer& stream, const Array<uint8_t>& out) {
  const nb::gil_scoped_release release;
  return snappy_front(as_span(stream), as_span(out));
}

}  // namespace

void bind_parquet(nb::module_& m) {
  m.def("parquet_chunks", &chunks, nb::arg("footer"),
        nb::sig("def parquet_chunks(footer: numpy.typing.NDArray[numpy.uint8]) -> "
                "numpy.typing.NDArray[numpy.int64]"),
        "Read the column chunks of a Parquet footer: for each a row of group, type, codec, values, "
        "size, begin, end, has_dictionary, text.");
  m.def("parquet_page", &page, nb::arg("bytes"),
        nb::sig("def parquet_page(bytes: numpy.typing.NDArray[numpy.uint8]) -> "
                "tuple[int, int, int, int, int, int, int]"),
        "Read the header of a Parquet page: its own size, kind, size, stored, values, rows, "
        "encoding.");
  m.def("count_zero_levels", &count_zeros, nb::arg("levels"), nb::arg("count"), nb::arg("bits"),
        nb::sig("def count_zero_levels(levels: numpy.typing.NDArray[numpy.uint8], count: int, "
                "bits: int) -> int"),
        "Count the zeros among the levels of a Parquet page; -1 if it has fewer levels.");
  m.def("snappy_front", &expand_front, nb::arg("stream"), nb::arg("out"),
        nb::sig("def snappy_front(stream: numpy.typing.NDArray[numpy.uint8], "
                "out: numpy.typing.NDArray[numpy.uint8]) -> int"),
        "Fill `out` with the beginning of a Snappy stream. Return how many bytes were made.");
}

}  // namespace recmap::bind
