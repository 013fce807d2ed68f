#include "decode.h"

#include <algorithm>
#include <deque>
#include <new>

#include "bind.h"
#include "inspect.h"

namespace recmap::bind {
namespace {

struct Columns {
  std::vector<Column> list;
  bool watch = false;
};

void add_column(Columns& columns, const std::string& key, Column::Place place, Dtype dtype,
                uint32_t itemsize, uint8_t ragged, uint64_t count, uint64_t step,
                const std::optional<nb::bytes>& fill, Kind kind) {
  if (itemsize == 0 || ragged > 2 || (ragged != 0 && count == 0)) {
    throw nb::value_error("not a column that records can hold");
  }
  Column column;
  column.key = key;
  column.place = place;
  column.dtype = dtype;
  column.itemsize = itemsize;
  column.ragged = ragged;
  column.count = count;
  column.step = step;
  column.kind = kind;
  if (fill) {
    const auto* data = static_cast<const uint8_t*>(fill->data());
    column.has_fill = true;
    column.fill.assign(data, data + fill->size());
    if (dtype != Dtype::kBytes && column.fill.size() != count * itemsize) {
      throw nb::value_error("a fill value is as large as a row");
    }
  }
  columns.list.push_back(std::move(column));
}

// Offsets arrays and values of the columns that were only measured.
struct Allocated {
  nb::object values = nb::none();
  nb::object outer = nb::none();
  nb::object steps = nb::none();
  nb::object strings = nb::none();
};

Allocated allocate(const Column& column, const CellSize& total, size_t rows,
                   const nb::callable& empty, ColumnBuffers& buffers) {
  Allocated made;
  const bool strings = column.dtype == Dtype::kBytes;
  const uint64_t items = column.ragged == 0 ? total.items : total.items * column.count;
  const uint64_t size = strings ? total.bytes : items * column.itemsize;
  made.values = empty(size);
  const auto values = nb::cast<Array<uint8_t>>(made.values);
  if (values.size() != size) throw nb::value_error("empty() makes arrays of the size asked for");
  buffers.values = as_span(values);
  if (column.ragged >= 1) made.outer = new_array<int64_t>(rows + 1, "int64", buffers.outer);
  if (column.ragged == 2) {
    made.steps = new_array<int64_t>(total.steps + 1, "int64", buffers.steps);
  }
  if (strings) made.strings = new_array<int64_t>(items + 1, "int64", buffers.strings);
  return made;
}

// How the rows of a ragged column are made to be of one length.
struct Pad {
  std::optional<uint64_t> width;  // in items; without it, that of the longest row
  uint64_t multiple;              // to which the longest is rounded up
  std::vector<uint8_t> fill;      // one item
  PadSides sides;
};

void new_pad(Pad* pad, std::optional<uint64_t> width, uint64_t multiple, const nb::bytes& fill,
             bool fill_left, bool keep_last) {
  if (multiple == 0 || fill.size() == 0) throw nb::value_error("not a way to pad rows");
  const auto* data = static_cast<const uint8_t*>(fill.data());
  new (pad) Pad{width, multiple, {data, data + fill.size()}, {fill_left, keep_last}};
}

uint64_t product(uint64_t a, uint64_t b) {
  uint64_t all;
  if (__builtin_mul_overflow(a, b, &all)) throw std::bad_alloc();
  return all;
}

// The arrays of a padded column.
struct PaddedColumn {
  nb::list made;
  std::vector<PaddedArray> arrays;
  PaddedRows rows;
};

void allocate_padded(const Decode& work, size_t column, const Pad& pad, size_t count, size_t each,
                     const nb::callable& empty, PaddedColumn& out) {
  for (size_t begin = 0; begin < count; begin += each) {
    const size_t end = std::min(count, begin + each);
    uint64_t width = pad.width.value_or(0);
    if (!pad.width) {
      const uint64_t longest = work.longest(column, begin, end);
      width = product(longest / pad.multiple + (longest % pad.multiple != 0), pad.multiple);
    }
    const uint64_t row_size = product(width, pad.fill.size());
    const uint64_t size = product(row_size, end - begin);
    const nb::object values = empty(size);
    const auto array = nb::cast<Array<uint8_t>>(values);
    if (array.size() != size) throw nb::value_error("empty() makes arrays of the size asked for");
    out.made.append(values);
    out.arrays.push_back({array.data(), row_size});
  }
  out.rows = {each, out.arrays, Bytes(pad.fill), pad.sides};
}

using Pads = std::vector<std::optional<Pad>>;

void check_pads(const std::vector<Column>& columns, const Pads& pads, size_t rows) {
  if (pads.empty()) return;
  if (pads.size() != columns.size() || rows == 0) {
    throw nb::value_error("one pad per column, or None, and rows of an array");
  }
  for (size_t c = 0; c < columns.size(); ++c) {
    const Column& column = columns[c];
    const bool fits = column.ragged == 1 && column.dtype != Dtype::kBytes;
    if (pads[c] && (!fits || pads[c]->fill.size() != column.count * column.itemsize)) {
      throw nb::value_error("not a column to be padded so");
    }
  }
}

using DescriptionList = nb::typed<nb::list, nb::typed<nb::tuple, nb::bytes, uint64_t>>;

DescriptionList as_list(const Descriptions& descriptions) {
  DescriptionList list;
  for (const auto& [content, row] : descriptions) {
    list.append(nb::make_tuple(nb::bytes(content.data(), content.size()), row));
  }
  return list;
}

std::tuple<nb::list, MaybeFault, nb::list, DescriptionList> decode(
    const Files& files, const Array<const uint64_t>& offsets, const Owners& owners,
    const Columns& wanted, bool verify, size_t threads,
    const std::vector<std::optional<Array<uint8_t>>>& dense, const nb::callable& empty,
    const Pads& pads, size_t rows) {
  const std::vector<Column>& columns = wanted.list;
  if (dense.size() != columns.size()) throw nb::value_error("one dense buffer per column, or None");
  std::vector<ColumnBuffers> buffers(columns.size());
  for (size_t c = 0; c < columns.size(); ++c) {
    if (!columns[c].dense_numbers()) continue;
    const uint64_t size = columns[c].count * columns[c].itemsize * offsets.size();
    if (!dense[c] || dense[c]->size() != size) {
      throw nb::value_error("a dense column needs a buffer of its size");
    }
    buffers[c].values = as_span(*dense[c]);
  }
  check_pads(columns, pads, rows);
  const Records records{row_files(files, owners, offsets.size()), as_span(offsets)};
  Decode work(records, columns, verify, threads, wanted.watch);
  Fault fault;
  {
    const nb::gil_scoped_release release;
    fault = work.first(buffers);
  }
  nb::list made;
  nb::list unknown;
  if (fault) return {made, maybe(fault), unknown, as_list({})};
  for (const auto& [key, feature] : work.unknown()) {
    const nb::bytes name(key.second.data(), key.second.size());
    unknown.append(nb::make_tuple(key.first, name, feature.kind, feature.rows, feature.first_row));
  }
  bool pending = false;
  std::deque<PaddedColumn> padded;
  for (size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].dense_numbers()) {
      made.append(nb::none());
      continue;
    }
    pending = true;
    if (!pads.empty() && pads[c]) {
      PaddedColumn& column = padded.emplace_back();
      allocate_padded(work, c, *pads[c], offsets.size(), rows, empty, column);
      buffers[c].padded = &column.rows;
      const nb::object outer = new_array<int64_t>(offsets.size() + 1, "int64", buffers[c].outer);
      made.append(nb::make_tuple(column.made, outer));
      continue;
    }
    const Allocated a = allocate(columns[c], work.totals()[c], offsets.size(), empty, buffers[c]);
    made.append(nb::make_tuple(a.values, a.outer, a.steps, a.strings));
  }
  if (pending) {
    const nb::gil_scoped_release release;
    fault = work.second(buffers);
  }
  return {made, maybe(fault), unknown, as_list(work.descriptions())};
}

std::tuple<std::vector<Fault>, DescriptionList> check(const Buffer& file,
                                                      const Array<const uint64_t>& offsets,
                                                      const Columns& columns, bool verify,
                                                      size_t threads) {
  std::vector<Fault> faults;
  Descriptions descriptions;
  {
    const nb::gil_scoped_release release;
    faults = check_rows(as_span(file), as_span(offsets), columns.list, verify, threads,
                        columns.watch, &descriptions);
  }
  return {std::move(faults), as_list(descriptions)};
}

Facts inspect_records(const Buffer& file, const Array<const uint64_t>& offsets, bool verify) {
  const nb::gil_scoped_release release;
  return inspect(as_span(file), as_span(offsets), verify);
}

std::optional<std::pair<uint64_t, uint64_t>> range(const Extent& extent) {
  if (extent.min > extent.max) return std::nullopt;
  return std::pair(extent.min, extent.max);
}

std::vector<Slot> slots_of(const Buffer& file, uint64_t offset, const Columns& columns) {
  const nb::gil_scoped_release release;
  return find_slots(as_span(file), offset, columns.list);
}

std::tuple<std::vector<bool>, MaybeFault, DescriptionList> slots_hold(
    const Buffer& file, uint64_t first, uint64_t stride, uint64_t lead, uint64_t count,
    const Columns& columns, const std::vector<Slot>& slots, bool verify, size_t threads) {
  if (slots.size() != columns.list.size()) throw nb::value_error("one slot per column");
  if (stride < kFrameSize) throw nb::value_error("a stride no record can have");
  SlotCheck result;
  {
    const nb::gil_scoped_release release;
    result = check_slots(as_span(file), first, stride, lead, count, columns.list, slots, verify,
                         threads);
  }
  return {std::vector<bool>(result.holds.begin(), result.holds.end()), maybe(result.fault),
          as_list(result.descriptions)};
}

}  // namespace

void bind_decode(nb::module_& m) {
  nb::enum_<Dtype>(m, "Dtype")
      .value("bytes", Dtype::kBytes)
      .value("opaque", Dtype::kOpaque)
      .value("bool", Dtype::kBool)
      .value("int8", Dtype::kInt8)
      .value("int16", Dtype::kInt16)
      .value("int32", Dtype::kInt32)
      .value("int64", Dtype::kInt64)
      .value("uint8", Dtype::kUint8)
      .value("uint16", Dtype::kUint16)
      .value("uint32", Dtype::kUint32)
      .value("uint64", Dtype::kUint64)
      .value("float32", Dtype::kFloat32)
      .value("float64", Dtype::kFloat64);
  nb::enum_<Kind>(m, "Kind")
      .value("none", Kind::kNone)
      .value("bytes", Kind::kBytes)
      .value("float", Kind::kFloat)
      .value("int64", Kind::kInt64);
  nb::enum_<Column::Place>(m, "Place")
      .value("any", Column::Place::kAny)
      .value("features", Column::Place::kFeatures)
      .value("lists", Column::Place::kLists);

  nb::class_<Columns>(m, "Columns", "What to read from each record.")
      .def(nb::init<>())
      .def("__len__", [](const Columns& columns) { return columns.list.size(); })
      .def("add", &add_column, nb::arg("key"), nb::arg("place"), nb::arg("dtype"),
           nb::arg("itemsize"), nb::arg("ragged"), nb::arg("count"), nb::arg("step"),
           nb::arg("fill").none(), nb::arg("kind") = Kind::kNone)
      .def_rw("watch", &Columns::watch, "Whether to count the features that no column reads.");

  nb::class_<FeatureFacts>(m, "FeatureFacts")
      .def_ro("rows", &FeatureFacts::rows)
      .def_prop_ro(
          "kinds",
          [](const FeatureFacts& f) {
            std::vector<std::pair<Kind, uint64_t>> kinds;
            for (const Kind kind : {Kind::kBytes, Kind::kFloat, Kind::kInt64}) {
              const uint64_t row = f.first_row[static_cast<size_t>(kind)];
              if (row != UINT64_MAX) kinds.emplace_back(kind, row);
            }
            return kinds;
          },
          "The kinds seen, each with the first row that has it.")
      .def_prop_ro("values", [](const FeatureFacts& f) { return range(f.values); })
      .def_prop_ro("steps", [](const FeatureFacts& f) { return range(f.steps); })
      .def_prop_ro("string_size", [](const FeatureFacts& f) { return range(f.string_size); })
      .def_ro("string_size_bits", &FeatureFacts::string_size_bits);

  nb::class_<Facts>(m, "Facts", "What the records seen hold.")
      .def_ro("rows", &Facts::rows)
      .def_prop_ro("not_example", [](const Facts& f) { return f.not_example; })
      .def_prop_ro(
          "features",
          [](const Facts& f) {
            std::vector<std::tuple<bool, std::string, FeatureFacts>> features;
            for (const auto& [key, facts] : f.features) {
              features.emplace_back(key.first, key.second, facts);
            }
            return features;
          },
          "(in the feature lists, key, facts), sorted.");

  nb::class_<Slot>(m, "Slot", "Where a payload lies in every record.")
      .def(nb::init<>())
      .def_ro("offset", &Slot::offset)
      .def_ro("size", &Slot::size)
      .def_ro("kind", &Slot::kind);

  nb::class_<Pad>(m, "Pad", "How rows of a ragged column become rows of one length.")
      .def("__init__", &new_pad, nb::arg("width").none(), nb::arg("multiple"), nb::arg("fill"),
           nb::arg("fill_left"), nb::arg("keep_last"));

  m.def("decode", &decode, nb::arg("files"), nb::arg("offsets"), nb::arg("owners").none(),
        nb::arg("columns"), nb::arg("verify"), nb::arg("threads"), nb::arg("dense"),
        nb::arg("empty"), nb::arg("pads") = Pads(), nb::arg("rows") = 0,
        nb::sig("def decode(files: Files, "
                "offsets: numpy.typing.NDArray[numpy.uint64], "
                "owners: numpy.typing.NDArray[numpy.uint32] | None, "
                "columns: Columns, verify: bool, threads: int, "
                "dense: list[numpy.typing.NDArray[numpy.uint8] | None], "
                "empty: collections.abc.Callable[[int], numpy.typing.NDArray[numpy.uint8]], "
                "pads: collections.abc.Sequence[Pad | None] = [], rows: int = 0) -> "
                "tuple[list[Decoded | Padded | None], Fault | None, list[Unknown], "
                "list[tuple[bytes, int]]]"),
        "The records at these offsets, each of the file its owner says, or of the only one, as "
        "columns. Dense numeric columns are written into "
        "`dense`; the others come back as (values, outer, steps, strings), the values in an "
        "array that empty() makes; those with a pad as (arrays of `rows` rows each, outer). Then "
        "the features "
        "that no column reads, if the columns watch for them: (in the feature lists, key, kind, "
        "rows, first row). Last, the descriptions that records begin with: (content, first row).");
  m.def("check_rows", &check, nb::arg("file"), nb::arg("offsets"), nb::arg("columns"),
        nb::arg("verify"), nb::arg("threads"),
        "The faults of the records that do not decode, and the descriptions that records begin "
        "with: (content, first row).");
  m.def("inspect", &inspect_records, nb::arg("file"), nb::arg("offsets"), nb::arg("verify"),
        "Facts about the features of these records.");
  m.def("find_slots", &slots_of, nb::arg("file"), nb::arg("offset"), nb::arg("columns"),
        "Where each column's payload lies in one record.");
  m.def("check_slots", &slots_hold, nb::arg("file"), nb::arg("first"), nb::arg("stride"),
        nb::arg("lead"), nb::arg("count"), nb::arg("columns"), nb::arg("slots"), nb::arg("verify"),
        nb::arg("threads"),
        "Whether each column lies at its slot in all these records, the first fault, and the "
        "descriptions that records begin with: (content, first row).");
}

}  // namespace recmap::bind
