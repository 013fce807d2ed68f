#include "encode.h"

#include "bind.h"

namespace recmap::bind {
namespace {

using Rows = nb::ndarray<const uint8_t, nb::ndim<2>, nb::device::cpu>;
using Offsets = Array<const int64_t>;

// The columns of one batch, with the arrays they point into.
class Batch {
 public:
  explicit Batch(uint64_t rows) : rows_(rows) {}

  void add_dense(const std::string& key, Kind kind, bool in_lists, Dtype dtype, uint32_t itemsize,
                 uint64_t count, uint64_t step, const Rows& values) {
    if (values.shape(0) != rows_ || values.shape(1) != count * itemsize ||
        (values.shape(1) > 1 && values.stride(1) != 1) || dtype == Dtype::kBytes ||
        (in_lists && (step == 0 || count % step != 0))) {
      throw nb::value_error("not a dense column of this batch");
    }
    EncodeColumn column = base(key, kind, in_lists, dtype, itemsize, 0, count);
    column.step = step;
    column.values = values.data();
    column.row_stride = values.stride(0);
    rows_arrays_.push_back(values);
    columns_.push_back(std::move(column));
  }

  void add_ragged(const std::string& key, Kind kind, bool in_lists, Dtype dtype, uint32_t itemsize,
                  uint8_t ragged, uint64_t count, uint64_t step, const Buffer& values,
                  const std::optional<Offsets>& outer, const std::optional<Offsets>& steps,
                  const std::optional<Offsets>& strings) {
    EncodeColumn column = base(key, kind, in_lists, dtype, itemsize, ragged, count);
    column.step = step;
    column.values = values.data();
    const bool text = dtype == Dtype::kBytes;
    bool sound = ragged <= 2 && count != 0 && outer.has_value() == (ragged >= 1) &&
                 steps.has_value() == (ragged == 2) && strings.has_value() == text &&
                 (ragged != 2 || in_lists) && (!text || kind == Kind::kBytes) &&
                 (text || ragged != 0) && (!in_lists || (step != 0 && count % step == 0));
    if (outer) column.outer = as_span(*outer);
    if (steps) column.steps = as_span(*steps);
    if (strings) column.strings = as_span(*strings);
    sound = sound && (ragged == 0 || column.outer.size() == rows_ + 1) &&
            (ragged != 2 || !column.steps.empty()) && (!text || !column.strings.empty());
    if (sound) {
      const uint64_t values_or_strings =
          text ? column.strings.size() - 1 : values.size() / itemsize;
      const uint64_t items = values_or_strings / count;
      if (text) sound = offsets_are_sound(column.strings, values.size());
      if (ragged == 0) sound = sound && items == rows_;
      if (ragged == 1) sound = sound && offsets_are_sound(column.outer, items);
      if (ragged == 2) {
        sound = sound && offsets_are_sound(column.steps, items) &&
                offsets_are_sound(column.outer, column.steps.size() - 1);
      }
    }
    if (!sound) throw nb::value_error("offsets must ascend and end inside the values");
    values_arrays_.push_back(values);
    for (const auto& offsets : {outer, steps, strings}) {
      if (offsets) offsets_arrays_.push_back(*offsets);
    }
    columns_.push_back(std::move(column));
  }

  // (framed bytes, offset of each record and the total, fault)
  std::tuple<nb::object, nb::object, MaybeFault> encode(uint64_t align, size_t threads,
                                                        const nb::bytes& lead) const {
    if (align != 0 && lead.size() % align != 0) {
      throw nb::value_error("what leads aligned records must be aligned");
    }
    Encode work(columns_, rows_, align, threads,
                Bytes(static_cast<const uint8_t*>(lead.data()), lead.size()));
    Fault fault;
    {
      const nb::gil_scoped_release release;
      fault = work.measure();
    }
    if (fault) return {nb::none(), nb::none(), maybe(fault)};
    std::span<uint8_t> out;
    nb::object bytes = new_array<uint8_t>(work.offsets().back(), "uint8", out);
    {
      const nb::gil_scoped_release release;
      fault = work.write(out.data());
    }
    return {bytes, copy_array<uint64_t>(work.offsets(), "uint64"), maybe(fault)};
  }

 private:
  static EncodeColumn base(const std::string& key, Kind kind, bool in_lists, Dtype dtype,
                           uint32_t itemsize, uint8_t ragged, uint64_t count) {
    const bool numbers = dtype >= Dtype::kBool && dtype <= Dtype::kUint64;
    const bool fits = itemsize != 0 &&
                      (kind == Kind::kBytes || (kind == Kind::kFloat && dtype == Dtype::kFloat32) ||
                       (kind == Kind::kInt64 && numbers));
    if (!fits) throw nb::value_error("this list cannot hold this dtype");
    EncodeColumn column;
    column.key = key;
    column.kind = kind;
    column.in_lists = in_lists;
    column.dtype = dtype;
    column.itemsize = itemsize;
    column.ragged = ragged;
    column.count = count;
    return column;
  }

  uint64_t rows_;
  std::vector<EncodeColumn> columns_;
  std::vector<Rows> rows_arrays_;
  std::vector<Buffer> values_arrays_;
  std::vector<Offsets> offsets_arrays_;
};

}  // namespace

void bind_encode(nb::module_& m) {
  nb::class_<Batch>(m, "Batch", "Columns to be written; add them sorted by key, lists last.")
      .def(nb::init<uint64_t>(), nb::arg("rows"))
      .def("add_dense", &Batch::add_dense, nb::arg("key"), nb::arg("kind"), nb::arg("in_lists"),
           nb::arg("dtype"), nb::arg("itemsize"), nb::arg("count"), nb::arg("step"),
           nb::arg("values"))
      .def("add_ragged", &Batch::add_ragged, nb::arg("key"), nb::arg("kind"), nb::arg("in_lists"),
           nb::arg("dtype"), nb::arg("itemsize"), nb::arg("ragged"), nb::arg("count"),
           nb::arg("step"), nb::arg("values"), nb::arg("outer").none(), nb::arg("steps").none(),
           nb::arg("strings").none())
      .def("encode", &Batch::encode, nb::arg("align"), nb::arg("threads"),
           nb::arg("lead") = nb::bytes("", 0),
           nb::sig("def encode(self, align: int, threads: int, lead: bytes = b'') -> "
                   "tuple[numpy.typing.NDArray[numpy.uint8], numpy.typing.NDArray[numpy.uint64], "
                   "Fault | None]"));
}

}  // namespace recmap::bind
