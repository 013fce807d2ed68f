#include "column.h"

#include "bind.h"

namespace recmap::bind {
namespace {

void add_column(Columns& columns, const std::string& key, Column::Place place,
                const RowLayout& layout, const std::optional<nb::bytes>& fill, Kind kind,
                bool nullable) {
  if (layout.itemsize == 0 || layout.ragged > 2 || (layout.ragged != 0 && layout.count == 0)) {
    throw nb::value_error("not a column that records can hold");
  }
  if (nullable && layout.ragged == 0 && !fill) {
    throw nb::value_error("rows that are null need a fill value");
  }
  Column column{layout};
  column.key = key;
  column.place = place;
  column.kind = kind;
  column.nullable = nullable;
  if (fill) {
    const Bytes bytes = as_bytes(*fill);
    column.has_fill = true;
    column.fill.assign(bytes.begin(), bytes.end());
    if (layout.dtype != Dtype::kBytes && bytes.size() != layout.count * layout.itemsize) {
      throw nb::value_error("a fill value is as large as a row");
    }
  }
  columns.list.push_back(std::move(column));
}

}  // namespace

void bind_column(nb::module_& m) {
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

  nb::class_<RowLayout>(m, "RowLayout", "How the values of one row of a column are laid out.")
      .def(nb::init<Dtype, uint32_t, uint8_t, uint64_t, uint64_t, bool>(), nb::arg("dtype"),
           nb::arg("itemsize"), nb::arg("ragged"), nb::arg("count"), nb::arg("step"),
           nb::arg("text") = false,
           "`ragged` axes come first, below them lie `count` values; a step of a feature list that "
           "fills a row without ragged axes has `step` values. Strings of `text` must be UTF-8.");

  nb::class_<Columns>(m, "Columns", "The columns to read from each record.")
      .def(nb::init<>())
      .def("__len__", [](const Columns& columns) { return columns.list.size(); })
      .def("add", &add_column, nb::arg("key"), nb::arg("place"), nb::arg("layout"),
           nb::arg("fill").none(), nb::arg("kind") = Kind::kNone, nb::arg("nullable") = false,
           "Add a column. `kind` is the only list that may hold it, unless it is none. Without "
           "ragged axes, a `nullable` one needs a fill, for the rows that are null.")
      .def_rw("count_unknown", &Columns::count_unknown,
              "Whether to count the features that no column reads.");
}

}  // namespace recmap::bind
