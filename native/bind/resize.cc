#include "resize.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "bind.h"

namespace recmap::bind {
namespace {

using Image = nb::ndarray<const uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Result = nb::ndarray<nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Values = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void resize_image(const Image& pixels, const Result& out, const std::optional<Values>& values) {
  const Pixels image{pixels.data(), pixels.shape(0), pixels.shape(1), pixels.shape(2)};
  if (image.channels != 1 && image.channels != 3 && image.channels != 4) {
    throw nb::value_error("an image has 1, 3 or 4 channels");
  }
  if (pixels.size() == 0 || out.size() == 0 || out.shape(2) != image.channels) {
    throw nb::value_error("the images are empty, or have different channels");
  }
  if (values ? values->size() != 256 || values->dtype() != out.dtype()
             : out.dtype() != nb::dtype<uint8_t>()) {
    throw nb::value_error("there must be 256 values of the dtype of out");
  }
  const size_t item = out.itemsize();
  if (item != 1 && item != 2 && item != 4 && item != 8) {
    throw nb::value_error("values have 1, 2, 4 or 8 bytes");
  }
  const nb::gil_scoped_release release;
  auto* bytes = static_cast<uint8_t*>(out.data());
  const bool same = image.height == out.shape(0) && image.width == out.shape(1);
  std::vector<uint8_t> resized(same || !values ? 0 : out.size());
  if (!same) {
    resize(image, out.shape(0), out.shape(1), values ? resized.data() : bytes);
  } else if (!values) {
    std::copy_n(image.data, out.size(), bytes);
  }
  if (values) {
    const std::span levels(same ? image.data : resized.data(), out.size());
    look_up(levels, values->data(), item, bytes);
  }
}

}  // namespace

void bind_resize(nb::module_& m) {
  m.def("resize_image", &resize_image, nb::arg("pixels"), nb::arg("out").noconvert(),
        nb::arg("values") = nb::none(),
        nb::sig("def resize_image(pixels: numpy.typing.NDArray[numpy.uint8], "
                "out: numpy.typing.NDArray[typing.Any], "
                "values: numpy.typing.NDArray[typing.Any] | None = None) -> None"),
        "Fill `out` with a resized image, its levels looked up in 256 values.");
}

}  // namespace recmap::bind
