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

nb::bytes frame(const std::vector<Buffer>& records) {
  size_t total = 0;
  for (const Buffer& record : records) total += record.size() + kFrameSize;
  // Nobody else sees the bytes before they are returned, so they can be filled without the GIL.
  nb::bytes out =
      nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(total)));
  if (!out.is_valid()) throw std::bad_alloc();
  auto* at = reinterpret_cast<uint8_t*>(PyBytes_AsString(out.ptr()));
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
      .value("not_utf8", FaultCode::kNotUtf8)
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

  m.attr("HEADER_SIZE") = kHeaderSize;
  m.attr("FRAME_SIZE") = kFrameSize;
  m.attr("MAX_MESSAGE_SIZE") = kMaxMessageSize;

  m.def("crc32c", &crc, nb::arg("data"), nb::arg("crc") = 0,
        "Return the CRC32C of the data, continued from `crc`.");
  m.def("crc32c_paths", &crc_paths,
        "Return the names of the CRC implementations this CPU can run, best first.");
  m.def("frame", &frame, nb::arg("records"), "Return the records framed, end to end.");
}

}  // namespace recmap::bind
