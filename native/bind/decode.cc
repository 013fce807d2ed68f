#include "decode.h"

#include <deque>
#include <new>

#include "bind.h"
#include "check_records.h"

namespace recmap::bind {

DescriptionList list_descriptions(const Descriptions& descriptions) {
  DescriptionList list;
  for (const auto& [content, row] : descriptions) {
    list.append(nb::make_tuple(nb::bytes(content.data(), content.size()), row));
  }
  return list;
}

namespace {

// How the rows of a ragged column become rows of one length.
struct Pad {
  std::optional<uint64_t> width;  // in items; without it, that of the longest row
  uint64_t multiple;              // to which the longest is rounded up
  std::vector<uint8_t> fill;      // one item
  PadSides sides;
};

void new_pad(Pad* place, std::optional<uint64_t> width, uint64_t multiple, const nb::bytes& fill,
             bool fill_left, bool keep_last) {
  if (multiple == 0 || fill.size() == 0) throw nb::value_error("not a way to pad rows");
  const Bytes item = as_bytes(fill);
  new (place) Pad{width, multiple, {item.begin(), item.end()}, {fill_left, keep_last}};
}

// Where decoded values go.
struct DecodeTarget {
  std::vector<std::optional<Array<uint8_t>>> dense;  // per column; for dense numbers only
  nb::callable allocate;                             // makes arrays of bytes for other values
  std::vector<std::optional<Pad>> pads;              // per column, or none at all
  size_t rows_per_array;                             // of padded columns
  std::vector<std::optional<Array<uint8_t>>> nulls;  // per column, or none; for nullable ones

  void check(const std::vector<Column>& columns, size_t rows) const;
  const Pad* pad(size_t c) const { return pads.empty() || !pads[c] ? nullptr : &*pads[c]; }
  nb::object make(uint64_t size, std::span<uint8_t>& contents) const;
};

void DecodeTarget::check(const std::vector<Column>& columns, size_t rows) const {
  if (dense.size() != columns.size()) throw nb::value_error("one dense buffer per column, or None");
  if (!pads.empty() && (pads.size() != columns.size() || rows_per_array == 0)) {
    throw nb::value_error("one pad per column, or None, and rows of an array");
  }
  if (!nulls.empty() && nulls.size() != columns.size()) {
    throw nb::value_error("one mask per column, or None");
  }
  for (size_t c = 0; c < columns.size(); ++c) {
    const Column& column = columns[c];
    if (column.nullable && (nulls.empty() || !nulls[c] || nulls[c]->size() != rows)) {
      throw nb::value_error("a nullable column needs a mask of its rows");
    }
    const uint64_t item = column.count * column.itemsize;
    if (column.dense_numbers() && (!dense[c] || dense[c]->size() != item * rows)) {
      throw nb::value_error("a dense column needs a buffer of its size");
    }
    const bool can_pad = column.ragged == 1 && column.dtype != Dtype::kBytes;
    if (pad(c) != nullptr && (!can_pad || pad(c)->fill.size() != item)) {
      throw nb::value_error("this column cannot be padded like this");
    }
  }
}

nb::object DecodeTarget::make(uint64_t size, std::span<uint8_t>& contents) const {
  nb::object array = allocate(size);
  contents = as_span(nb::cast<Array<uint8_t>>(array));
  if (contents.size() != size) {
    throw nb::value_error("allocate() makes arrays of the size asked for");
  }
  return array;
}

uint64_t product(uint64_t a, uint64_t b) {
  uint64_t all;
  if (__builtin_mul_overflow(a, b, &all)) throw std::bad_alloc();
  return all;
}

uint64_t sum(uint64_t a, uint64_t b) {
  uint64_t all;
  if (__builtin_add_overflow(a, b, &all)) throw std::bad_alloc();
  return all;
}

// Frameworks take arrays that begin like this without a copy.
uint64_t aligned(uint64_t size) {
  constexpr uint64_t kAlignment = 64;
  return sum(size, kAlignment - 1) / kAlignment * kAlignment;
}

// The arrays of the columns that are copied in the second phase.
class Outputs {
 public:
  Outputs(const Decoder& decoder, const std::vector<Column>& columns, const DecodeTarget& target,
          size_t rows)
      : decoder_(decoder), columns_(columns), target_(target), rows_(rows) {}

  // Makes the arrays of a column. Returns them as Python sees them.
  nb::object make(size_t c, ColumnBuffers& buffers) {
    if (columns_[c].dense_numbers()) return nb::none();
    pending_ = true;
    const Pad* const pad = target_.pad(c);
    return pad == nullptr ? make_ragged(c, buffers) : make_padded(c, *pad, buffers);
  }

  bool pending() const { return pending_; }

 private:
  struct Padded {
    std::vector<PaddedArray> arrays;
    PaddedRows rows;
  };

  nb::object make_ragged(size_t c, ColumnBuffers& buffers) {
    const BufferSizes sizes = buffer_sizes(columns_[c], decoder_.total(c), rows_);
    const nb::object values = target_.make(sizes.values, buffers.values);
    const nb::object outer = make_offsets(sizes.outer, buffers.outer);
    const nb::object steps = make_offsets(sizes.steps, buffers.steps);
    const nb::object strings = make_offsets(sizes.strings, buffers.strings);
    return nb::make_tuple(values, outer, steps, strings);
  }

  nb::object make_padded(size_t c, const Pad& pad, ColumnBuffers& buffers) {
    Padded& padded = padded_.emplace_back();
    nb::list places;
    std::vector<uint64_t> starts;
    uint64_t size = 0;
    for (size_t begin = 0; begin < rows_; begin += target_.rows_per_array) {
      const size_t rows = std::min(rows_ - begin, target_.rows_per_array);
      const uint64_t items = width(c, pad, starts.size());
      const uint64_t row_size = product(items, pad.fill.size());
      padded.arrays.push_back({nullptr, row_size});
      places.append(nb::make_tuple(size, items));
      starts.push_back(size);
      size = aligned(sum(size, product(row_size, rows)));
    }
    std::span<uint8_t> contents;
    const nb::object values = target_.make(size, contents);
    for (size_t i = 0; i < starts.size(); ++i)
      padded.arrays[i].values = contents.data() + starts[i];
    padded.rows = {target_.rows_per_array, padded.arrays, Bytes(pad.fill), pad.sides};
    buffers.padded = &padded.rows;
    return nb::make_tuple(values, places, make_offsets(rows_ + 1, buffers.outer));
  }

  uint64_t width(size_t c, const Pad& pad, size_t array) const {
    if (pad.width) return *pad.width;
    const uint64_t longest = decoder_.longest(c, array);
    return product(longest / pad.multiple + (longest % pad.multiple != 0), pad.multiple);
  }

  nb::object make_offsets(uint64_t size, std::span<int64_t>& out) const {
    if (size == 0) return nb::none();
    std::span<uint8_t> contents;
    const nb::object array = target_.make(product(size, sizeof(int64_t)), contents);
    if (reinterpret_cast<uintptr_t>(contents.data()) % alignof(int64_t) != 0) {
      throw nb::value_error("allocate() makes arrays that are aligned");
    }
    out = {reinterpret_cast<int64_t*>(contents.data()), size};
    return array.attr("view")("int64");
  }

  const Decoder& decoder_;
  const std::vector<Column>& columns_;
  const DecodeTarget& target_;
  size_t rows_;
  std::deque<Padded> padded_;  // buffers point into it
  bool pending_ = false;
};

nb::list list_unknown(const UnknownFeatures& unknown) {
  nb::list list;
  for (const auto& [key, feature] : unknown) {
    const nb::bytes name(key.second.data(), key.second.size());
    list.append(nb::make_tuple(key.first, name, feature.kind, feature.rows, feature.first_row));
  }
  return list;
}

std::tuple<nb::list, MaybeFault, nb::list, DescriptionList> decode(
    const BoundRecords& records, const Columns& columns, const DecodeTarget& target, bool verify,
    size_t threads, const std::optional<Array<const int64_t>>& steps,
    const std::vector<bool>& stepped) {
  const size_t rows = records.count;
  target.check(columns.list, rows);
  const std::vector<uint8_t> has_steps(stepped.begin(), stepped.end());
  Steps taken;
  if (steps) {
    if (steps->size() != rows || stepped.size() != columns.list.size()) {
      throw nb::value_error("one step per record, and whether each column has steps");
    }
    taken = {std::span(steps->data(), steps->size()), has_steps};
    for (const int64_t step : taken.numbers) {
      if (step < 0) throw nb::value_error("steps are numbered from 0");
    }
  }
  std::vector<ColumnBuffers> buffers(columns.list.size());
  for (size_t c = 0; c < buffers.size(); ++c) {
    if (columns.list[c].dense_numbers()) buffers[c].values = as_span(*target.dense[c]);
    if (columns.list[c].nullable) buffers[c].nulls = as_span(*target.nulls[c]);
  }
  Decoder decoder(records.get(), columns.list, {verify, threads, columns.count_unknown, taken},
                  target.pads.empty() ? 0 : target.rows_per_array);
  nb::list made;
  Fault fault;
  {
    const nb::gil_scoped_release release;
    fault = decoder.parse(buffers);
  }
  if (fault) return {made, maybe(fault), nb::list(), DescriptionList()};
  Outputs outputs(decoder, columns.list, target, rows);
  for (size_t c = 0; c < buffers.size(); ++c) made.append(outputs.make(c, buffers[c]));
  if (outputs.pending()) {
    const nb::gil_scoped_release release;
    fault = decoder.copy(buffers);
  }
  return {made, maybe(fault), list_unknown(decoder.findings().unknown),
          list_descriptions(decoder.findings().descriptions)};
}

std::tuple<std::vector<Fault>, DescriptionList> check(const BoundRecords& records,
                                                      const Columns& columns, bool verify,
                                                      size_t threads) {
  const Records all = records.get();
  RecordCheck result;
  {
    const nb::gil_scoped_release release;
    result = check_records(all, columns.list, {verify, threads, columns.count_unknown});
  }
  return {std::move(result.faults), list_descriptions(result.descriptions)};
}

}  // namespace

void bind_decode(nb::module_& m) {
  nb::class_<Pad>(m, "Pad", "How the rows of a ragged column become rows of one length.")
      .def("__init__", &new_pad, nb::arg("width").none(), nb::arg("multiple"), nb::arg("fill"),
           nb::arg("fill_left"), nb::arg("keep_last"),
           "`width` is in items; without it, the longest row, rounded up to `multiple`. `fill` "
           "is one item.");
  nb::class_<DecodeTarget>(m, "DecodeTarget", "Where decoded values go.")
      .def(nb::init<std::vector<std::optional<Array<uint8_t>>>, nb::callable,
                    std::vector<std::optional<Pad>>, size_t,
                    std::vector<std::optional<Array<uint8_t>>>>(),
           nb::arg("dense"), nb::arg("allocate"),
           nb::arg("pads") = std::vector<std::optional<Pad>>(), nb::arg("rows_per_array") = 0,
           nb::arg("nulls") = std::vector<std::optional<Array<uint8_t>>>(),
           nb::sig("def __init__(self, "
                   "dense: list[numpy.typing.NDArray[numpy.uint8] | None], "
                   "allocate: collections.abc.Callable[[int], numpy.typing.NDArray[numpy.uint8]], "
                   "pads: collections.abc.Sequence[Pad | None] = [], "
                   "rows_per_array: int = 0, "
                   "nulls: list[numpy.typing.NDArray[numpy.uint8] | None] = []) -> None"),
           "`dense` has an array for each column of dense numbers; allocate() makes those of the "
           "others. A column with a pad gets an array for every `rows_per_array` rows. A nullable "
           "one needs a mask in `nulls`, all 0, which becomes 1 where a row is null.");
  m.def("decode", &decode, nb::arg("records"), nb::arg("columns"), nb::arg("target"),
        nb::arg("verify"), nb::arg("threads"), nb::arg("steps").none() = nb::none(),
        nb::arg("stepped") = std::vector<bool>(),
        nb::sig("def decode(records: Records, columns: Columns, target: DecodeTarget, "
                "verify: bool, threads: int, "
                "steps: numpy.typing.NDArray[numpy.int64] | None = None, "
                "stepped: collections.abc.Sequence[bool] = []) -> "
                "tuple[list[Decoded | Padded | None], Fault | None, list[Unknown], "
                "list[tuple[bytes, int]]]"),
        "Decode records into columns.\n\n"
        "With `steps`, decode one step of each record: its part of the lists of the columns that "
        "are `stepped`. "
        "Return for each column None if its values are in `target.dense`, (values, outer, steps, "
        "strings), or if it is padded (values, (start in bytes, width in items) of each array, "
        "outer); the first fault; the features that no "
        "column reads, if they are counted: (in the feature lists, key, kind, rows, first row); "
        "and the descriptions that records begin with: (content, first row).");
  m.def("check_records", &check, nb::arg("records"), nb::arg("columns"), nb::arg("verify"),
        nb::arg("threads"),
        "Return the faults of the records that do not decode, and the descriptions that records "
        "begin with: (content, first row).");
}

}  // namespace recmap::bind
