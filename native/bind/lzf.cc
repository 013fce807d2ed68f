#include "lzf.h"

#include "bind.h"

namespace recmap::bind {
namespace {

std::pair<LzfFault, size_t> expand(const Buffer& stream, const Array<uint8_t>& out) {
  const nb::gil_scoped_release release;
  const LzfResult result = lzf_expand(as_span(stream), as_span(out));
  return {result.fault, result.made};
}

}  // namespace

void bind_lzf(nb::module_& m) {
  nb::enum_<LzfFault>(m, "LzfFault")
      .value("none", LzfFault::kNone)
      .value("cut", LzfFault::kCut)
      .value("too_long", LzfFault::kTooLong)
      .value("too_short", LzfFault::kTooShort)
      .value("before_start", LzfFault::kBeforeStart);
  m.attr("LZF_MOST_GROWTH") = kLzfMostGrowth;
  m.def("lzf_expand", &expand, nb::arg("stream"), nb::arg("out"),
        nb::sig("def lzf_expand(stream: numpy.typing.NDArray[numpy.uint8], "
                "out: numpy.typing.NDArray[numpy.uint8]) -> tuple[LzfFault, int]"),
        "Fill `out` from an LZF stream. Return what is wrong with it, and how many bytes it made.");
}

}  // namespace recmap::bind
