#include "jpeg.h"

#include <optional>
#include <tuple>

#include "bind.h"

namespace recmap::bind {
namespace {

using Place = std::tuple<size_t, size_t, size_t, size_t>;
using Part = nb::ndarray<uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

std::optional<std::tuple<size_t, size_t, bool>> header_of(const nb::bytes& data) {
  const auto header = read_jpeg_header(as_bytes(data));
  if (!header) return std::nullopt;
  return std::tuple(header->height, header->width, header->common);
}

bool decode(const nb::bytes& data, size_t by, std::pair<size_t, size_t> corner, const Part& out) {
  const size_t channels = out.shape(2);
  if (channels != 1 && channels != 3 && channels != 4) {
    throw nb::value_error("an image has 1, 3 or 4 channels");
  }
  const Box box{corner.first, corner.second, out.shape(0), out.shape(1)};
  const Bytes bytes = as_bytes(data);
  const nb::gil_scoped_release release;
  return decode_jpeg(bytes, channels, by, box, out.data());
}

}  // namespace

void bind_jpeg(nb::module_& m) {
  m.def("use_jpeg_of", &use_jpeg_of, nb::arg("library"),
        "Take libjpeg-turbo from a shared library. Return whether that is possible.");
  m.def("read_jpeg_header", &header_of, nb::arg("data"),
        "Return the height and width of a JPEG, and whether it is grey or YCbCr.");
  m.def("decode_jpeg", &decode, nb::arg("data"), nb::arg("by"), nb::arg("corner"),
        nb::arg("out").noconvert(),
        nb::sig("def decode_jpeg(data: bytes, by: int, corner: tuple[int, int], "
                "out: numpy.typing.NDArray[numpy.uint8]) -> bool"),
        "Fill `out` with a part of a JPEG, at a `by`-th of its size; return whether it is sound.");
}

}  // namespace recmap::bind
