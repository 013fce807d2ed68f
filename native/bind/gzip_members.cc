#include "gzip_members.h"

#include "bind.h"

namespace recmap::bind {
namespace {

using Ends = std::vector<std::pair<size_t, size_t>>;

Ends find(const Buffer& stored, size_t most) {
  Ends ends;
  for (const auto& [where, plain] : find_members(as_span(stored), most)) {
    ends.emplace_back(where, plain);
  }
  return ends;
}

size_t inflate(const Buffer& stored, const Ends& ends, const Array<uint8_t>& out, size_t threads) {
  std::vector<MemberEnd> members;
  members.reserve(ends.size());
  for (const auto& [where, plain] : ends) members.push_back({where, plain});
  const nb::gil_scoped_release release;
  return inflate_members(as_span(stored), members, as_span(out), threads);
}

}  // namespace

void bind_gzip_members(nb::module_& m) {
  m.attr("MAX_MEMBER_SIZE") = kMostMember;
  m.def(
      "member_size", [](const nb::bytes& head) { return member_size(as_bytes(head)); },
      nb::arg("head"),
      "Return the size that the gzip member states which begins with these bytes; None if it "
      "states none, or is too large to be inflated at once.");
  m.def("find_members", &find, nb::arg("stored"), nb::arg("most"),
        "Return where the members end that `stored` begins with and that state their size, in "
        "`stored` and in the plain bytes, of which there are `most` at most.");
  m.def("inflate_members", &inflate, nb::arg("stored"), nb::arg("ends"), nb::arg("out"),
        nb::arg("threads"),
        "Inflate members into `out`. Return how many there are before the first unsound one.");
}

}  // namespace recmap::bind
