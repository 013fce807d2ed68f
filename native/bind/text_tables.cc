#include <numeric>

#include "bind.h"
#include "csv.h"
#include "json_rows.h"
#include "text_rows.h"
#include "text_values.h"

namespace recmap::bind {
namespace {

struct TextColumns {
  std::vector<TextColumn> list;
  bool strict = true;
};

void add_column(TextColumns& columns, std::vector<std::string> path, Dtype dtype, bool text,
                uint8_t depth, bool given, bool nullable, bool null_items, bool wanted) {
  if (dtype == Dtype::kOpaque) throw nb::value_error("not a column that text can hold");
  columns.list.push_back(
      {std::move(path), dtype, text, depth, given, nullable, null_items, wanted});
}

// Gives bytes to numpy, without copying them.
nb::object array_of(GrowingBytes& bytes, size_t itemsize, const char* dtype) {
  const size_t count = bytes.size() / itemsize;
  nb::object numpy = nb::module_::import_("numpy");
  if (count == 0) return numpy.attr("empty")(0, dtype);
  uint8_t* const data = bytes.release();
  const nb::capsule owner(data, [](void* held) noexcept { std::free(held); });
  using Contents = nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>;
  return nb::cast(Contents(data, {count * itemsize}, owner)).attr("view")(dtype);
}

struct Layout {
  size_t itemsize;
  const char* dtype;
};

Layout layout_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBool:
      return {1, "bool"};
    case Dtype::kInt8:
      return {1, "int8"};
    case Dtype::kInt16:
      return {2, "int16"};
    case Dtype::kInt32:
      return {4, "int32"};
    case Dtype::kInt64:
      return {8, "int64"};
    case Dtype::kUint16:
      return {2, "uint16"};
    case Dtype::kUint32:
      return {4, "uint32"};
    case Dtype::kUint64:
      return {8, "uint64"};
    case Dtype::kFloat32:
      return {4, "float32"};
    case Dtype::kFloat64:
      return {8, "float64"};
    default:
      return {1, "uint8"};
  }
}

// The values of a column, and of each level the ends of its lists or strings, and what is null.
nb::tuple column_of(TextValues& values) {
  nb::list levels;
  for (ValueLevel& level : values.levels()) {
    nb::object ends = level.ends.size() != 0 ? array_of(level.ends, 8, "int64") : nb::none();
    nb::object nulls = nb::none();
    if (level.nulls.size() != 0) {
      const uint8_t zero = 0;
      while (level.nulls.size() < level.count) level.nulls.append(&zero, 1);
      nulls = array_of(level.nulls, 1, "bool");
    }
    levels.append(nb::make_tuple(ends, nulls));
  }
  const Layout layout = layout_of(values.column().dtype);
  return nb::make_tuple(array_of(values.data(), layout.itemsize, layout.dtype), levels);
}

using Parsed = std::tuple<uint64_t, nb::list, std::optional<TextFault>>;

template <typename Parse>
Parsed parsed(const TextColumns& columns, Parse&& parse) {
  std::vector<TextValues> values;
  TextFault fault;
  uint64_t rows = 0;
  {
    const nb::gil_scoped_release release;
    values.reserve(columns.list.size());
    for (const TextColumn& column : columns.list) values.emplace_back(column);
    fault = parse(values, rows);
  }
  nb::list found;
  for (TextValues& each : values) {
    if (each.column().wanted) found.append(fault ? nb::tuple() : column_of(each));
  }
  return {rows, found, fault ? std::optional(fault) : std::nullopt};
}

Parsed parse_csv_rows(const Buffer& text, const RowSyntax& syntax, const TextColumns& columns) {
  return parsed(columns, [&](std::span<TextValues> values, uint64_t& rows) {
    return parse_csv(as_span(text), syntax, values, rows);
  });
}

Parsed parse_json_rows(const Buffer& text, const TextColumns& columns) {
  return parsed(columns, [&](std::span<TextValues> values, uint64_t& rows) {
    return parse_json(as_span(text), JsonColumns(columns.list), columns.strict, values, rows);
  });
}

std::tuple<nb::object, std::optional<TextFault>> survey(const Buffer& text, const RowSyntax& syntax,
                                                        size_t columns) {
  std::span<uint8_t> looks;
  nb::object array = new_array<uint8_t>(columns, "uint8", looks);
  std::fill(looks.begin(), looks.end(), uint8_t{0});
  TextFault fault;
  {
    const nb::gil_scoped_release release;
    fault = survey_csv(as_span(text), syntax, looks);
  }
  return {array, fault ? std::optional(fault) : std::nullopt};
}

nb::list first_row(const Buffer& text, const RowSyntax& syntax) {
  nb::list fields;
  for (const std::string& field : first_csv_row(as_span(text), syntax)) {
    fields.append(nb::bytes(field.data(), field.size()));
  }
  return fields;
}

RowScan scan(const Buffer& text, int next, const RowState& state, const RowSyntax& syntax,
             uint64_t step, size_t threads) {
  const nb::gil_scoped_release release;
  return scan_rows(as_span(text), next, state, syntax, step, threads);
}

std::tuple<uint64_t, uint64_t> walk(const Buffer& text, const RowSyntax& syntax, uint64_t rows,
                                    uint64_t most) {
  const nb::gil_scoped_release release;
  const RowWalk found = walk_rows(as_span(text), syntax, rows, most);
  return {found.rows, found.end};
}

std::tuple<nb::object, nb::object> locate(const Buffer& text, const RowSyntax& syntax,
                                          const Array<const uint64_t>& offsets,
                                          const Array<const uint64_t>& steps) {
  if (offsets.size() != steps.size()) throw nb::value_error("offsets and steps of unequal length");
  std::span<uint64_t> begins, ends;
  nb::object begin_array = new_array<uint64_t>(offsets.size(), "uint64", begins);
  nb::object end_array = new_array<uint64_t>(offsets.size(), "uint64", ends);
  {
    const nb::gil_scoped_release release;
    locate_rows(as_span(text), syntax, as_span(offsets), as_span(steps), begins, ends);
  }
  return {begin_array, end_array};
}

// Copies rows one after the other, each with a line break at its end.
std::tuple<nb::object, nb::object> gather(const Buffer& text, const Array<const uint64_t>& begins,
                                          const Array<const uint64_t>& ends) {
  const std::span<const uint64_t> from = as_span(begins), to = as_span(ends);
  if (from.size() != to.size()) throw nb::value_error("begins and ends of unequal length");
  std::span<uint64_t> places;
  nb::object place_array = new_array<uint64_t>(from.size(), "uint64", places);
  uint64_t size = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] > to[i] || to[i] > text.size()) throw nb::value_error("rows outside of the text");
    places[i] = size;
    size += to[i] - from[i] + 1;
  }
  std::span<uint8_t> copied;
  nb::object copy = new_array<uint8_t>(size, "uint8", copied);
  {
    const nb::gil_scoped_release release;
    for (size_t i = 0; i < from.size(); ++i) {
      uint8_t* const at = copied.data() + places[i];
      std::memcpy(at, text.data() + from[i], to[i] - from[i]);
      at[to[i] - from[i]] = '\n';
    }
  }
  return {copy, place_array};
}

void bind_faults(nb::module_& m) {
  nb::enum_<RowFault>(m, "RowFault")
      .value("none", RowFault::kNone)
      .value("quote", RowFault::kQuote)
      .value("carriage_return", RowFault::kReturn);
  nb::enum_<TextFaultCode>(m, "TextFaultCode")
      .value("few_fields", TextFaultCode::kFewFields)
      .value("many_fields", TextFaultCode::kManyFields)
      .value("quote", TextFaultCode::kQuote)
      .value("unclosed", TextFaultCode::kUnclosed)
      .value("null", TextFaultCode::kNull)
      .value("not_number", TextFaultCode::kNotNumber)
      .value("not_whole", TextFaultCode::kNotWhole)
      .value("out_of_range", TextFaultCode::kOutOfRange)
      .value("inexact", TextFaultCode::kInexact)
      .value("not_bool", TextFaultCode::kNotBool)
      .value("not_text", TextFaultCode::kNotText)
      .value("not_list", TextFaultCode::kNotList)
      .value("not_utf8_text", TextFaultCode::kNotUtf8)
      .value("not_object", TextFaultCode::kNotObject)
      .value("not_json", TextFaultCode::kNotJson)
      .value("escape", TextFaultCode::kEscape)
      .value("duplicate", TextFaultCode::kDuplicate)
      .value("unknown_key", TextFaultCode::kUnknownKey)
      .value("too_deep", TextFaultCode::kTooDeep);
  nb::class_<TextFault>(m, "TextFault", "What is wrong with a row of text, and where in the text.")
      .def_ro("code", &TextFault::code)
      .def_ro("row", &TextFault::row)
      .def_ro("row_offset", &TextFault::row_offset)
      .def_ro("begin", &TextFault::begin, "Where the value begins, or the key.")
      .def_ro("end", &TextFault::end)
      .def_ro("column", &TextFault::column, "-1 if it is of no column.")
      .def_ro("found", &TextFault::found);
}

void bind_scans(nb::module_& m) {
  nb::class_<RowSyntax>(m, "RowSyntax", "How rows of text are told apart.")
      .def(nb::init<uint8_t, uint8_t>(), nb::arg("quote") = 0, nb::arg("delimiter") = 0,
           "Without quotes (0), every line is a row.");
  nb::class_<RowState>(m, "RowState", "What is known at a place between two bytes of text.")
      .def(nb::init<>())
      .def_ro("quoted", &RowState::quoted);
  nb::class_<RowScan>(m, "RowScan", "Rows that begin in a text.")
      .def_ro("rows", &RowScan::rows)
      .def_ro("state", &RowScan::state)
      .def_ro("fault", &RowScan::fault)
      .def_ro("fault_offset", &RowScan::fault_offset)
      .def_prop_ro(
          "anchor_rows",
          [](const RowScan& s) { return copy_array<uint64_t>(s.anchor_rows, "uint64"); },
          nb::sig("def anchor_rows(self) -> numpy.typing.NDArray[numpy.uint64]"))
      .def_prop_ro(
          "anchor_offsets",
          [](const RowScan& s) { return copy_array<uint64_t>(s.anchor_offsets, "uint64"); },
          nb::sig("def anchor_offsets(self) -> numpy.typing.NDArray[numpy.uint64]"));
  m.def("scan_text_rows", &scan, nb::arg("text"), nb::arg("next"), nb::arg("state"),
        nb::arg("syntax"), nb::arg("step"), nb::arg("threads"),
        "Find the rows that begin in a text, and the first of each step of bytes. `next` is the "
        "byte after it, -1 at the end of the file.");
  m.def("walk_text_rows", &walk, nb::arg("text"), nb::arg("syntax"), nb::arg("rows"),
        nb::arg("most"),
        "Return how many rows have at most `most` bytes together, but at least one and at most "
        "`rows`, and where they end.");
  m.def("locate_text_rows", &locate, nb::arg("text"), nb::arg("syntax"), nb::arg("offsets"),
        nb::arg("steps"),
        nb::sig("def locate_text_rows(text: numpy.typing.NDArray[numpy.uint8], syntax: RowSyntax, "
                "offsets: numpy.typing.NDArray[numpy.uint64], "
                "steps: numpy.typing.NDArray[numpy.uint64]) -> "
                "tuple[numpy.typing.NDArray[numpy.uint64], numpy.typing.NDArray[numpy.uint64]]"),
        "Return where rows begin and end, each so many rows after one that begins at an offset.");
  m.def("gather_text_rows", &gather, nb::arg("text"), nb::arg("begins"), nb::arg("ends"),
        nb::sig("def gather_text_rows(text: numpy.typing.NDArray[numpy.uint8], "
                "begins: numpy.typing.NDArray[numpy.uint64], "
                "ends: numpy.typing.NDArray[numpy.uint64]) -> "
                "tuple[numpy.typing.NDArray[numpy.uint8], numpy.typing.NDArray[numpy.uint64]]"),
        "Return rows one after the other, and where each begins.");
}

}  // namespace

void bind_text_tables(nb::module_& m) {
  bind_faults(m);
  bind_scans(m);
  m.attr("LOOKS_EMPTY") = static_cast<int>(kLooksEmpty);
  m.attr("LOOKS_WHOLE") = static_cast<int>(kLooksWhole);
  m.attr("LOOKS_DECIMAL") = static_cast<int>(kLooksDecimal);
  m.attr("LOOKS_EXPONENT") = static_cast<int>(kLooksExponent);
  m.attr("LOOKS_OTHER") = static_cast<int>(kLooksOther);
  m.attr("LOOKS_QUOTED") = static_cast<int>(kLooksQuoted);
  m.attr("LOOKS_BARE") = static_cast<int>(kLooksBare);
  nb::class_<TextColumns>(m, "TextColumns", "The columns to parse from text.")
      .def(nb::init<>())
      .def_rw("strict", &TextColumns::strict, "Whether keys that no column has are faults.")
      .def("add", &add_column, nb::arg("path"), nb::arg("dtype"), nb::kw_only(), nb::arg("text"),
           nb::arg("depth"), nb::arg("given"), nb::arg("nullable"), nb::arg("null_items"),
           nb::arg("wanted"),
           "Add a column. `path` has the keys that lead to it, `depth` is that of its lists. "
           "`given` types allow more ways to write a number.");
  const char* const kParsed =
      "Parse whole rows. Return their number, for each wanted column its values and its levels, "
      "and what is wrong, if anything.";
  m.def("parse_csv", &parse_csv_rows, nb::arg("text"), nb::arg("syntax"), nb::arg("columns"),
        nb::sig("def parse_csv(text: numpy.typing.NDArray[numpy.uint8], syntax: RowSyntax, "
                "columns: TextColumns) -> tuple[int, list[object], TextFault | None]"),
        kParsed);
  m.def("parse_json_rows", &parse_json_rows, nb::arg("text"), nb::arg("columns"),
        nb::sig("def parse_json_rows(text: numpy.typing.NDArray[numpy.uint8], "
                "columns: TextColumns) -> tuple[int, list[object], TextFault | None]"),
        kParsed);
  m.def("first_csv_row", &first_row, nb::arg("text"), nb::arg("syntax"),
        nb::sig("def first_csv_row(text: numpy.typing.NDArray[numpy.uint8], syntax: RowSyntax) -> "
                "list[bytes]"),
        "Return the fields of the first row.");
  m.def("survey_csv", &survey, nb::arg("text"), nb::arg("syntax"), nb::arg("columns"),
        nb::sig("def survey_csv(text: numpy.typing.NDArray[numpy.uint8], syntax: RowSyntax, "
                "columns: int) -> tuple[numpy.typing.NDArray[numpy.uint8], TextFault | None]"),
        "Return how the fields of each column look, as bits, and what is wrong, if anything.");
}

}  // namespace recmap::bind
