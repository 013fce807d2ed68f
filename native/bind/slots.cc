#include "slots.h"

#include "bind.h"

namespace recmap::bind {
namespace {

std::vector<Slot> find(const Buffer& file, uint64_t offset, const Columns& columns) {
  const nb::gil_scoped_release release;
  return find_slots(as_span(file), offset, columns.list);
}

std::tuple<std::vector<bool>, MaybeFault, DescriptionList> check(const Buffer& file,
                                                                 const UniformRecords& records,
                                                                 const Columns& columns,
                                                                 const std::vector<Slot>& slots,
                                                                 bool verify, size_t threads) {
  if (slots.size() != columns.list.size()) throw nb::value_error("one slot per column");
  if (records.stride < kFrameSize) throw nb::value_error("a stride no record can have");
  SlotCheck result;
  {
    const nb::gil_scoped_release release;
    result = check_slots(as_span(file), records, columns.list, slots,
                         {.verify = verify, .threads = threads});
  }
  return {std::vector<bool>(result.holds.begin(), result.holds.end()), maybe(result.fault),
          list_descriptions(result.descriptions)};
}

}  // namespace

void bind_slots(nb::module_& m) {
  nb::class_<Slot>(m, "Slot", "The place of a payload in every record.")
      .def(nb::init<>())
      .def_ro("offset", &Slot::offset)
      .def_ro("size", &Slot::size)
      .def_ro("kind", &Slot::kind);
  nb::class_<UniformRecords>(m, "UniformRecords",
                             "Records of one size that fill a file end to end.")
      .def(nb::init<uint64_t, uint64_t, uint64_t>(), nb::arg("count"), nb::arg("stride"),
           nb::arg("lead") = 0, "The first is longer by `lead` bytes.");
  m.def("find_slots", &find, nb::arg("file"), nb::arg("offset"), nb::arg("columns"),
        "Return where the payload of each column lies in one record.");
  m.def("check_slots", &check, nb::arg("file"), nb::arg("records"), nb::arg("columns"),
        nb::arg("slots"), nb::arg("verify"), nb::arg("threads"),
        "Return whether each column lies at its slot in all records, the first fault, and the "
        "descriptions that records begin with: (content, first row).");
}

}  // namespace recmap::bind
