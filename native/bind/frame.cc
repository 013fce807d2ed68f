#include "frame.h"

#include "bind.h"
#include "crc32c.h"

namespace recmap::bind {
namespace {

uint32_t crc(const Buffer& data, uint32_t before) {
  const nb::gil_scoped_release release;
  return crc32c_extend(before, data.data(), data.size());
}

std::vector<std::string> crc_paths() {
  std::vector<std::string> names;
  for (const CrcPath& path : crc32c_paths()) names.emplace_back(path.name);
  return names;
}

Scan scan_records(const Buffer& file, uint64_t begin, uint64_t stop, uint64_t limit, uint64_t every,
                  bool verify, size_t threads) {
  const nb::gil_scoped_release release;
  if (limit != UINT64_MAX) return scan(as_span(file), begin, stop, limit, every, verify);
  return scan_parallel(as_span(file), begin, stop, every, verify, threads);
}

uint64_t find(const Buffer& file, uint64_t begin, uint64_t stop) {
  const nb::gil_scoped_release release;
  return find_record(as_span(file), begin, stop);
}

std::tuple<nb::object, MaybeFault> locate_rows(const Buffer& file,
                                               const Array<const uint64_t>& mark_rows,
                                               const Array<const uint64_t>& mark_offsets,
                                               const Array<const int64_t>& rows, size_t threads) {
  if (mark_rows.size() != mark_offsets.size()) throw nb::value_error("marks of unequal length");
  std::span<uint64_t> offsets;
  nb::object array = new_array<uint64_t>(rows.size(), "uint64", offsets);
  Fault fault;
  {
    const nb::gil_scoped_release release;
    fault = locate(as_span(file), as_span(mark_rows), as_span(mark_offsets), as_span(rows), offsets,
                   threads);
  }
  return {array, maybe(fault)};
}

void add_file(Files& files, const Buffer& file, uint64_t stride,
              const Array<const uint64_t>& mark_rows, const Array<const uint64_t>& mark_offsets,
              uint64_t lead) {
  if (mark_rows.size() != mark_offsets.size()) throw nb::value_error("marks of unequal length");
  files.arrays.push_back(file);
  files.marks.push_back(mark_rows);
  files.marks.push_back(mark_offsets);
  files.bytes.push_back(as_span(file));
  files.known.push_back({as_span(file), stride, as_span(mark_rows), as_span(mark_offsets), lead});
}

std::tuple<nb::object, MaybeFault> locate_in(const Files& files, const Owners& owners,
                                             const Array<const int64_t>& rows, size_t threads) {
  const RowFiles places = row_files(files, owners, rows.size());
  std::span<uint64_t> offsets;
  nb::object array = new_array<uint64_t>(rows.size(), "uint64", offsets);
  Fault fault;
  {
    const nb::gil_scoped_release release;
    fault = locate(files.known, places.owners, as_span(rows), offsets, threads);
  }
  return {array, maybe(fault)};
}

nb::bytes frame(const std::vector<Buffer>& records) {
  size_t total = 0;
  for (const Buffer& record : records) total += record.size() + kFrameSize;
  // Nobody else sees the bytes before they are returned, so they may be filled without the lock.
  nb::bytes out =
      nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(total)));
  if (!out.is_valid()) throw std::bad_alloc();
  auto* at = reinterpret_cast<uint8_t*>(PyBytes_AS_STRING(out.ptr()));
  {
    const nb::gil_scoped_release release;
    for (const Buffer& record : records) {
      write_header(at, record.size());
      at += kHeaderSize;
      if (record.size() != 0) std::memcpy(at, record.data(), record.size());
      write_footer(at + record.size(), Bytes(at, record.size()));
      at += record.size() + kFooterSize;
    }
  }
  return out;
}

}  // namespace

void bind_frame(nb::module_& m) {
  nb::enum_<FaultCode>(m, "FaultCode")
      .value("header_cut", FaultCode::kHeaderCut)
      .value("length_crc", FaultCode::kLengthCrc)
      .value("data_cut", FaultCode::kDataCut)
      .value("data_crc", FaultCode::kDataCrc)
      .value("malformed", FaultCode::kMalformed)
      .value("too_large", FaultCode::kTooLarge)
      .value("missing", FaultCode::kMissing)
      .value("wrong_kind", FaultCode::kWrongKind)
      .value("wrong_count", FaultCode::kWrongCount)
      .value("wrong_size", FaultCode::kWrongSize)
      .value("not_one_string", FaultCode::kNotOneString)
      .value("not_multiple", FaultCode::kNotMultiple)
      .value("out_of_range", FaultCode::kOutOfRange)
      .value("flat_not_nested", FaultCode::kFlatNotNested)
      .value("changed", FaultCode::kChanged)
      .value("no_features", FaultCode::kNoFeatures)
      .value("unknown_feature", FaultCode::kUnknown);

  nb::class_<Fault>(m, "Fault", "What is wrong with a record, and where.")
      .def_ro("code", &Fault::code)
      .def_ro("row", &Fault::row)
      .def_ro("offset", &Fault::offset)
      .def_prop_ro("column",
                   [](const Fault& f) {
                     return f.column == kNoColumn ? std::nullopt : std::optional(f.column);
                   })
      .def_ro("expected", &Fault::expected)
      .def_ro("found", &Fault::found);

  nb::class_<Scan>(m, "Scan", "Records that lie end to end.")
      .def_ro("begin", &Scan::begin)
      .def_ro("end", &Scan::end)
      .def_ro("records", &Scan::records)
      .def_ro("min_length", &Scan::min_length)
      .def_ro("max_length", &Scan::max_length)
      .def_ro("first_length", &Scan::first_length)
      .def_prop_ro(
          "mark_rows", [](const Scan& s) { return copy_array<uint64_t>(s.mark_rows, "uint64"); },
          nb::sig("def mark_rows(self) -> numpy.typing.NDArray[numpy.uint64]"))
      .def_prop_ro(
          "mark_offsets",
          [](const Scan& s) { return copy_array<uint64_t>(s.mark_offsets, "uint64"); },
          nb::sig("def mark_offsets(self) -> numpy.typing.NDArray[numpy.uint64]"))
      .def_prop_ro("fault", [](const Scan& s) { return maybe(s.fault); });

  m.attr("HEADER_SIZE") = kHeaderSize;
  m.attr("FRAME_SIZE") = kFrameSize;
  m.attr("MAX_MESSAGE_SIZE") = kMaxMessageSize;
  m.attr("NO_LIMIT") = UINT64_MAX;

  m.def("crc32c", &crc, nb::arg("data"), nb::arg("crc") = 0,
        "CRC32C of the data, continued from `crc`.");
  m.def("crc32c_paths", &crc_paths, "The CRC implementations this CPU can run, best first.");
  nb::class_<Files>(m, "Files", "Files whose rows are read together.")
      .def(nb::init<>())
      .def("__len__", [](const Files& files) { return files.bytes.size(); })
      .def("add", &add_file, nb::arg("file"), nb::arg("stride"), nb::arg("mark_rows"),
           nb::arg("mark_offsets"), nb::arg("lead") = 0,
           nb::sig("def add(self, file: numpy.typing.NDArray[numpy.uint8], stride: int, "
                   "mark_rows: numpy.typing.NDArray[numpy.uint64], "
                   "mark_offsets: numpy.typing.NDArray[numpy.uint64], lead: int = 0) -> None"),
           "Adds a file, whose records are `stride` bytes apart, the first longer by `lead` "
           "bytes, or found by marks.");
  m.def("locate_in", &locate_in, nb::arg("files"), nb::arg("owners").none(), nb::arg("rows"),
        nb::arg("threads"),
        nb::sig("def locate_in(files: Files, owners: numpy.typing.NDArray[numpy.uint32] | None, "
                "rows: numpy.typing.NDArray[numpy.int64], threads: int) -> "
                "tuple[numpy.typing.NDArray[numpy.uint64], Fault | None]"),
        "Offsets of rows of several files, each with its number in the file its owner says, or in "
        "the only one.");
  m.def("scan", &scan_records, nb::arg("file"), nb::arg("begin"), nb::arg("stop"), nb::arg("limit"),
        nb::arg("every"), nb::arg("verify"), nb::arg("threads"),
        "Records that begin in [begin, stop), with a mark at every `every`-th.");
  m.def("find_record", &find, nb::arg("file"), nb::arg("begin"), nb::arg("stop"),
        "Offset of the first sound record that begins in [begin, stop), else `stop`.");
  m.def("locate", &locate_rows, nb::arg("file"), nb::arg("mark_rows"), nb::arg("mark_offsets"),
        nb::arg("rows"), nb::arg("threads"),
        nb::sig("def locate(file: numpy.typing.NDArray[numpy.uint8], mark_rows: "
                "numpy.typing.NDArray[numpy.uint64], "
                "mark_offsets: numpy.typing.NDArray[numpy.uint64], "
                "rows: numpy.typing.NDArray[numpy.int64], threads: int) -> "
                "tuple[numpy.typing.NDArray[numpy.uint64], Fault | None]"),
        "Offsets of the records with these numbers.");
  m.def("frame", &frame, nb::arg("records"), "The records framed, end to end.");
}

}  // namespace recmap::bind
