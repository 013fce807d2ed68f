#include "scan.h"

#include "bind.h"

namespace recmap::bind {
namespace {

Scan scan_records(const Buffer& file, const ScanRequest& request) {
  const nb::gil_scoped_release release;
  return scan(as_span(file), request);
}

uint64_t find(const Buffer& file, uint64_t begin, uint64_t stop, bool verify) {
  const nb::gil_scoped_release release;
  return find_record(as_span(file), begin, stop, verify);
}

}  // namespace

void bind_scan(nb::module_& m) {
  m.attr("NO_LIMIT") = UINT64_MAX;
  nb::class_<ScanRequest>(m, "ScanRequest", "Which records to scan, and how.")
      .def(nb::init<uint64_t, uint64_t, uint64_t, uint64_t, bool, size_t>(), nb::arg("begin") = 0,
           nb::arg("stop") = UINT64_MAX, nb::kw_only(), nb::arg("limit") = UINT64_MAX,
           nb::arg("anchor_every") = 0, nb::arg("verify") = false, nb::arg("threads") = 1,
           "Records that begin in [begin, stop), at most `limit`, with an anchor at every "
           "`anchor_every`-th (0 for none). `verify` also checks the CRC of the data.");
  nb::class_<Scan>(m, "Scan", "Records that lie end to end.")
      .def_ro("begin", &Scan::begin)
      .def_ro("end", &Scan::end, "Where the next record would begin.")
      .def_ro("records", &Scan::records)
      .def_ro("min_length", &Scan::min_length)
      .def_ro("max_length", &Scan::max_length)
      .def_ro("first_length", &Scan::first_length)
      .def_prop_ro(
          "anchor_rows",
          [](const Scan& s) { return copy_array<uint64_t>(s.anchor_rows, "uint64"); },
          nb::sig("def anchor_rows(self) -> numpy.typing.NDArray[numpy.uint64]"))
      .def_prop_ro(
          "anchor_offsets",
          [](const Scan& s) { return copy_array<uint64_t>(s.anchor_offsets, "uint64"); },
          nb::sig("def anchor_offsets(self) -> numpy.typing.NDArray[numpy.uint64]"))
      .def_prop_ro(
          "fault", [](const Scan& s) { return maybe(s.fault); },
          "Why the scan ended early, if it did.");
  m.def("scan", &scan_records, nb::arg("file"), nb::arg("request"), "Find records one by one.");
  m.def("find_record", &find, nb::arg("file"), nb::arg("begin"), nb::arg("stop"), nb::kw_only(),
        nb::arg("verify") = true,
        "Return the offset of the first sound record that begins in [begin, stop), else `stop`. "
        "Unless `verify`, only its length is checked.");
}

}  // namespace recmap::bind
