#include "locate.h"

#include "bind.h"
#include "prefetch.h"

namespace recmap::bind {

std::span<const uint32_t> Files::owners_of(const Owners& owners, size_t rows) const {
  if (list.empty()) throw nb::value_error("rows lie in one file or more");
  if (!owners) return {};
  const std::span<const uint32_t> all = as_span(*owners);
  const auto is_file = [&](uint32_t owner) { return owner < list.size(); };
  if (all.size() != rows || !std::all_of(all.begin(), all.end(), is_file)) {
    throw nb::value_error("every row has one of the files for an owner");
  }
  return all;
}

Records BoundRecords::get() const {
  if (first) return {.files = files->list, .strided = {*first, count}};
  std::span<const uint32_t> numbers = files->owners_of(owners, offsets.size());
  if (!numbers.empty()) numbers = numbers.first(count);
  return {files->list, as_span(offsets).first(count), numbers};
}

namespace {

using Anchors = std::optional<Array<const uint64_t>>;

void add_file(Files& files, const Buffer& file, uint64_t stride, const Anchors& anchor_rows,
              const Anchors& anchor_offsets, uint64_t lead) {
  IndexedFile indexed{.bytes = as_span(file), .stride = stride, .lead = lead};
  if (anchor_rows) indexed.anchor_rows = as_span(*anchor_rows);
  if (anchor_offsets) indexed.anchor_offsets = as_span(*anchor_offsets);
  if (indexed.anchor_rows.size() != indexed.anchor_offsets.size()) {
    throw nb::value_error("anchors of unequal length");
  }
  files.contents.push_back(file);
  for (const Anchors& anchors : {anchor_rows, anchor_offsets}) {
    if (anchors) files.anchors.push_back(*anchors);
  }
  files.list.push_back(indexed);
}

void new_records(BoundRecords* place, nb::object files, Array<const uint64_t> offsets,
                 Owners owners) {
  const auto* list = nb::cast<const Files*>(files);
  const size_t count = offsets.size();
  new (place) BoundRecords{std::move(files), list, std::move(offsets), std::move(owners), count};
}

BoundRecords records_of_file(const Buffer& file, Array<const uint64_t> offsets) {
  Files files;
  add_file(files, file, 0, std::nullopt, std::nullopt, 0);
  nb::object object = nb::cast(std::move(files));
  const auto* list = nb::cast<const Files*>(object);
  const size_t count = offsets.size();
  return {std::move(object), list, std::move(offsets), std::nullopt, count};
}

BoundRecords strided_records(const Buffer& file, uint64_t stride, uint64_t lead, uint64_t first,
                             uint64_t count) {
  Files files;
  add_file(files, file, stride, std::nullopt, std::nullopt, lead);
  // All offsets, and the sums that make them, must fit.
  constexpr uint64_t kLimit = uint64_t{1} << 62;
  uint64_t end;
  if (stride == 0 || count == 0 || __builtin_add_overflow(first, count, &end) || lead > kLimit ||
      end > kLimit / stride) {
    throw nb::value_error("not rows of a file of this stride");
  }
  nb::object object = nb::cast(std::move(files));
  const auto* list = nb::cast<const Files*>(object);
  return {std::move(object), list, {}, std::nullopt, count, first};
}

BoundRecords first_records(const BoundRecords& records, size_t count) {
  BoundRecords some = records;
  some.count = std::min(count, records.count);
  return some;
}

std::tuple<nb::object, MaybeFault> locate_rows(const Files& files, const Owners& owners,
                                               const Array<const int64_t>& rows, size_t threads) {
  const std::span<const uint32_t> row_owners = files.owners_of(owners, rows.size());
  std::span<uint64_t> offsets;
  nb::object array = new_array<uint64_t>(rows.size(), "uint64", offsets);
  Fault fault;
  {
    const nb::gil_scoped_release release;
    fault = locate(files.list, row_owners, as_span(rows), offsets, threads);
  }
  return {array, maybe(fault)};
}

std::tuple<nb::object, nb::object> divide_rows(const Array<const int64_t>& starts,
                                               const Array<const int64_t>& rows, size_t threads) {
  std::span<int64_t> numbers;
  std::span<uint32_t> owners;
  nb::object number_array = new_array<int64_t>(rows.size(), "int64", numbers);
  nb::object owner_array = new_array<uint32_t>(rows.size(), "uint32", owners);
  bool sound = false;
  {
    const nb::gil_scoped_release release;
    sound = divide_among_files(as_span(starts), as_span(rows), numbers, owners, threads);
  }
  if (!sound) throw nb::index_error("a row is in none of the files");
  return {number_array, owner_array};
}

bool prefetch(const Files& files, const Owners& owners, const Array<const int64_t>& rows) {
  const std::span<const uint32_t> row_owners = files.owners_of(owners, rows.size());
  const nb::gil_scoped_release release;
  return prefetch_records(files.list, row_owners, as_span(rows));
}

}  // namespace

void bind_locate(nb::module_& m) {
  nb::class_<Files>(m, "Files", "Files whose records are read together.")
      .def(nb::init<>())
      .def("__len__", [](const Files& files) { return files.list.size(); })
      .def("add", &add_file, nb::arg("file"), nb::arg("stride") = 0,
           nb::arg("anchor_rows").none() = nb::none(),
           nb::arg("anchor_offsets").none() = nb::none(), nb::arg("lead") = 0,
           nb::sig("def add(self, file: numpy.typing.NDArray[numpy.uint8], stride: int = 0, "
                   "anchor_rows: numpy.typing.NDArray[numpy.uint64] | None = None, "
                   "anchor_offsets: numpy.typing.NDArray[numpy.uint64] | None = None, "
                   "lead: int = 0) -> None"),
           "Add a file whose records are `stride` bytes apart, the first longer by `lead` bytes, "
           "or are reached from anchors.");
  nb::class_<BoundRecords>(m, "Records", "Records of one or more files, by offset.")
      .def("__init__", &new_records, nb::arg("files"), nb::arg("offsets"),
           nb::arg("owners").none() = nb::none(),
           nb::sig("def __init__(self, files: Files, offsets: numpy.typing.NDArray[numpy.uint64], "
                   "owners: numpy.typing.NDArray[numpy.uint32] | None = None) -> None"),
           "`owners` has the number of each record's file, unless all lie in the first.")
      .def_static("of_file", &records_of_file, nb::arg("file"), nb::arg("offsets"),
                  nb::sig("def of_file(file: numpy.typing.NDArray[numpy.uint8], "
                          "offsets: numpy.typing.NDArray[numpy.uint64]) -> Records"),
                  "Return records of one file.")
      .def_static("strided", &strided_records, nb::arg("file"), nb::arg("stride"), nb::arg("lead"),
                  nb::arg("first"), nb::arg("count"),
                  nb::sig("def strided(file: numpy.typing.NDArray[numpy.uint8], stride: int, "
                          "lead: int, first: int, count: int) -> Records"),
                  "Return one or more consecutive records of a file whose records are `stride` "
                  "bytes apart, the first longer by `lead` bytes.")
      .def("head", &first_records, nb::arg("count"), "Return the first `count` of them.")
      .def("__len__", [](const BoundRecords& records) { return records.count; });
  m.def("locate", &locate_rows, nb::arg("files"), nb::arg("owners").none(), nb::arg("rows"),
        nb::arg("threads"),
        nb::sig("def locate(files: Files, owners: numpy.typing.NDArray[numpy.uint32] | None, "
                "rows: numpy.typing.NDArray[numpy.int64], threads: int) -> "
                "tuple[numpy.typing.NDArray[numpy.uint64], Fault | None]"),
        "Return the offsets of rows, each numbered within the file of its owner, or within the "
        "first.");
  m.def("divide_among_files", &divide_rows, nb::arg("starts"), nb::arg("rows"), nb::arg("threads"),
        nb::sig("def divide_among_files(starts: numpy.typing.NDArray[numpy.int64], "
                "rows: numpy.typing.NDArray[numpy.int64], threads: int) -> "
                "tuple[numpy.typing.NDArray[numpy.int64], numpy.typing.NDArray[numpy.uint32]]"),
        "Return the number of each row within its file, and the number of the file. `starts` has "
        "the first row of each file and ends with the number of all rows.");
  m.def("prefetch_records", &prefetch, nb::arg("files"), nb::arg("owners").none(), nb::arg("rows"),
        nb::sig(
            "def prefetch_records(files: Files, owners: numpy.typing.NDArray[numpy.uint32] | None, "
            "rows: numpy.typing.NDArray[numpy.int64]) -> bool"),
        "Ask the system for rows of mapped files that are not in memory. Return whether there "
        "were any.");
}

}  // namespace recmap::bind
