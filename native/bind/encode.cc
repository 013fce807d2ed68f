#include "encode.h"

#include "bind.h"

namespace recmap::bind {
namespace {

using Rows = nb::ndarray<const uint8_t, nb::ndim<2>, nb::device::cpu>;
using Offsets = Array<const int64_t>;
using MaybeOffsets = std::optional<Offsets>;
using MaybeMask = std::optional<Buffer>;

// Where the rows, steps and strings of a column begin and end.
struct RaggedOffsets {
  MaybeOffsets outer;
  MaybeOffsets steps;
  MaybeOffsets strings;
};

// The columns of one batch.
class Batch {
 public:
  explicit Batch(uint64_t rows) : rows_(rows) {}

  void add_dense(const std::string& key, Kind kind, bool in_lists, const RowLayout& layout,
                 const Rows& values, const MaybeMask& nulls) {
    EncodeColumn column = new_column(key, kind, in_lists, layout, nulls);
    if (values.shape(0) != rows_ || values.shape(1) != layout.count * layout.itemsize ||
        (values.shape(1) > 1 && values.stride(1) != 1) || !column.is_dense()) {
      throw nb::value_error("not a dense column of this batch");
    }
    column.values = values.data();
    column.row_stride = values.stride(0);
    rows_arrays_.push_back(values);
    columns_.push_back(std::move(column));
  }

  void add_ragged(const std::string& key, Kind kind, bool in_lists, const RowLayout& layout,
                  const Buffer& values, const RaggedOffsets& offsets, const MaybeMask& nulls) {
    EncodeColumn column = new_column(key, kind, in_lists, layout, nulls);
    column.values = values.data();
    if (offsets.outer) column.outer = as_span(*offsets.outer);
    if (offsets.steps) column.steps = as_span(*offsets.steps);
    if (offsets.strings) column.strings = as_span(*offsets.strings);
    bool sound = offsets.outer.has_value() == (layout.ragged >= 1) &&
                 offsets.steps.has_value() == (layout.ragged == 2) &&
                 offsets.strings.has_value() == (layout.dtype == Dtype::kBytes);
    if (sound) {
      const nb::gil_scoped_release release;
      sound = column.offsets_fit(rows_, values.size());
    }
    if (!sound) throw nb::value_error("offsets must ascend and end inside the values");
    values_arrays_.push_back(values);
    for (const MaybeOffsets& array : {offsets.outer, offsets.steps, offsets.strings}) {
      if (array) offsets_arrays_.push_back(*array);
    }
    columns_.push_back(std::move(column));
  }

  std::tuple<nb::object, nb::object, MaybeFault> encode(uint64_t align, size_t threads,
                                                        const nb::bytes& lead) const {
    if (align != 0 && lead.size() % align != 0) {
      throw nb::value_error("what leads aligned records must be aligned");
    }
    Encoder encoder(columns_, rows_, align, threads, as_bytes(lead));
    Fault fault;
    {
      const nb::gil_scoped_release release;
      fault = encoder.measure();
    }
    if (fault) return {nb::none(), nb::none(), maybe(fault)};
    std::span<uint8_t> out;
    nb::object bytes = new_array<uint8_t>(encoder.offsets().back(), "uint8", out);
    {
      const nb::gil_scoped_release release;
      fault = encoder.write(out.data());
    }
    return {bytes, copy_array<uint64_t>(encoder.offsets(), "uint64"), maybe(fault)};
  }

 private:
  EncodeColumn new_column(const std::string& key, Kind kind, bool in_lists, const RowLayout& layout,
                          const MaybeMask& nulls) {
    const bool integers = layout.dtype >= Dtype::kBool && layout.dtype <= Dtype::kUint64;
    const bool fits =
        layout.itemsize != 0 &&
        (kind == Kind::kBytes || (kind == Kind::kFloat && layout.dtype == Dtype::kFloat32) ||
         (kind == Kind::kInt64 && integers));
    if (!fits) throw nb::value_error("this list cannot hold this dtype");
    EncodeColumn column{layout};
    column.key = key;
    column.kind = kind;
    column.in_lists = in_lists;
    if (nulls) {
      if (nulls->size() != rows_) throw nb::value_error("a mask has one value per row");
      column.nulls = {nulls->data(), nulls->size()};
      masks_.push_back(*nulls);
    }
    return column;
  }

  uint64_t rows_;
  std::vector<EncodeColumn> columns_;
  std::vector<Rows> rows_arrays_;
  std::vector<Buffer> values_arrays_;
  std::vector<Offsets> offsets_arrays_;
  std::vector<Buffer> masks_;
};

}  // namespace

void bind_encode(nb::module_& m) {
  nb::class_<RaggedOffsets>(m, "RaggedOffsets",
                            "Where the rows, steps and strings of a column begin and end.")
      .def(nb::init<MaybeOffsets, MaybeOffsets, MaybeOffsets>(), nb::arg("outer").none(),
           nb::arg("steps").none(), nb::arg("strings").none(),
           "Each has one entry more than the column has such things, or is None if it has none.");
  nb::class_<Batch>(m, "Batch", "Columns to write. Add them sorted by key, feature lists last.")
      .def(nb::init<uint64_t>(), nb::arg("rows"))
      .def("add_dense", &Batch::add_dense, nb::arg("key"), nb::arg("kind"), nb::arg("in_lists"),
           nb::arg("layout"), nb::arg("values"), nb::arg("nulls").none() = nb::none(),
           "Add a column of numbers without ragged axes. Rows are left out where `nulls` is not 0.")
      .def("add_ragged", &Batch::add_ragged, nb::arg("key"), nb::arg("kind"), nb::arg("in_lists"),
           nb::arg("layout"), nb::arg("values"), nb::arg("offsets"),
           nb::arg("nulls").none() = nb::none(), "Add a column of strings, or with ragged axes.")
      .def("encode", &Batch::encode, nb::arg("align"), nb::arg("threads"),
           nb::arg("lead") = nb::bytes("", 0),
           nb::sig("def encode(self, align: int, threads: int, lead: bytes = b'') -> "
                   "tuple[numpy.typing.NDArray[numpy.uint8], numpy.typing.NDArray[numpy.uint64], "
                   "Fault | None]"),
           "Return the framed records, the offset of each and of their end, and the first fault. "
           "`lead` is put before the features of the first record.");
}

}  // namespace recmap::bind
