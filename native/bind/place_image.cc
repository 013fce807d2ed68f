#include "place_image.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "bind.h"
#include "random_box.h"

namespace recmap::bind {
namespace {

using Image = nb::ndarray<const uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Images = nb::ndarray<const uint8_t, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using Result = nb::ndarray<nb::c_contig, nb::device::cpu>;
using Values = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Boxes = nb::ndarray<const int64_t, nb::shape<-1, 4>, nb::c_contig, nb::device::cpu>;
using Place = std::tuple<int64_t, int64_t, int64_t, int64_t>;
using Key = std::pair<uint64_t, uint64_t>;

// Boxes with a negative side lie outside of every image.
Box box_of(int64_t top, int64_t left, int64_t height, int64_t width) {
  return {static_cast<size_t>(top), static_cast<size_t>(left), static_cast<size_t>(height),
          static_cast<size_t>(width)};
}

// How to write images of so many channels to `out`, which has `leading` axes in front of theirs.
Placement placement(const Result& out, size_t leading, size_t channels,
                    const std::optional<Values>& values, bool planes) {
  if (channels != 1 && channels != 3 && channels != 4) {
    throw nb::value_error("an image has 1, 3 or 4 channels");
  }
  if (out.ndim() != leading + 3) throw nb::value_error("out has another number of axes");
  const size_t high = leading + (planes ? 1 : 0);
  if (out.shape(planes ? leading : leading + 2) != channels || out.shape(high) == 0 ||
      out.shape(high + 1) == 0) {
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
  return {
      out.shape(high), out.shape(high + 1), false, planes, values ? values->data() : nullptr, item};
}

void resize_image(const Image& pixels, const Result& out, const std::optional<Values>& values,
                  const std::optional<Place>& box, bool flip, bool planes) {
  Pixels image{pixels.data(), pixels.shape(0), pixels.shape(1), pixels.shape(2)};
  Placement how = placement(out, 0, image.channels, values, planes);
  how.flip = flip;
  if (pixels.size() == 0) {
    throw nb::value_error("the images are empty, or have different channels");
  }
  if (box) {
    const Box part = std::apply(box_of, *box);
    if (!part.within(image.height, image.width)) throw nb::index_error("a box is not in the image");
    image = image.part(part);
  }
  const nb::gil_scoped_release release;
  place_image(image, how, static_cast<uint8_t*>(out.data()));
}

void crop_images(const Images& images, const Array<const int64_t>& rows, const Boxes& boxes,
                 const std::optional<Buffer>& flips, const Result& out,
                 const std::optional<Values>& values, bool planes, size_t threads) {
  const Pixels first{images.data(), images.shape(1), images.shape(2), images.shape(3)};
  const Placement how = placement(out, 1, first.channels, values, planes);
  bool sound = out.shape(0) == rows.size();
  if (sound) {
    const nb::gil_scoped_release release;
    std::vector<Box> parts(boxes.shape(0));
    for (size_t i = 0; i < parts.size(); ++i) {
      const int64_t* at = boxes.data() + 4 * i;
      parts[i] = box_of(at[0], at[1], at[2], at[3]);
    }
    const auto mirrored = flips ? as_span(*flips) : std::span<const uint8_t>();
    sound = place_images(first, images.shape(0), as_span(rows), parts, mirrored, how,
                         static_cast<uint8_t*>(out.data()), threads);
  }
  if (!sound) throw nb::index_error("a row or a box is not in the images");
}

template <typename Choose>
nb::object boxes_of(const Key& key, uint64_t epoch, const Array<const int64_t>& positions,
                    Choose choose) {
  std::span<int64_t> made;
  nb::object array = new_array<int64_t>(positions.size() * 4, "int64", made);
  for (size_t i = 0; i < positions.size(); ++i) {
    const RowRandom random({key.first, key.second}, epoch,
                           static_cast<uint64_t>(positions.data()[i]));
    const Box box = choose(random);
    const size_t sides[] = {box.top, box.left, box.height, box.width};
    std::copy_n(sides, 4, made.begin() + static_cast<ptrdiff_t>(4 * i));
  }
  return array.attr("reshape")(-1, 4);
}

void check_size(size_t height, size_t width) {
  if (height == 0 || width == 0) throw nb::value_error("the image is empty");
}

nb::object random_boxes(const Key& key, uint64_t epoch, const Array<const int64_t>& positions,
                        size_t height, size_t width, std::pair<double, double> scale,
                        std::pair<double, double> ratio) {
  check_size(height, width);
  const BoxRange range{scale.first, scale.second, ratio.first, ratio.second};
  return boxes_of(key, epoch, positions, [&](const RowRandom& random) {
    return random_box(random, range, height, width);
  });
}

nb::object random_windows(const Key& key, uint64_t epoch, const Array<const int64_t>& positions,
                          size_t height, size_t width, size_t box_height, size_t box_width) {
  check_size(box_height, box_width);
  if (box_height > height || box_width > width) throw nb::value_error("the box is too large");
  return boxes_of(key, epoch, positions, [&](const RowRandom& random) {
    return random_window(random, box_height, box_width, height, width);
  });
}

nb::object random_flips(const Key& key, uint64_t epoch, const Array<const int64_t>& positions) {
  std::span<uint8_t> made;
  nb::object array = new_array<uint8_t>(positions.size(), "uint8", made);
  for (size_t i = 0; i < made.size(); ++i) {
    made[i] = RowRandom({key.first, key.second}, epoch, static_cast<uint64_t>(positions.data()[i]))
                  .flips();
  }
  return array;
}

}  // namespace

void bind_place_image(nb::module_& m) {
  m.def("resize_image", &resize_image, nb::arg("pixels"), nb::arg("out").noconvert(),
        nb::arg("values") = nb::none(), nb::arg("box") = nb::none(), nb::arg("flip") = false,
        nb::arg("planes") = false,
        nb::sig("def resize_image(pixels: numpy.typing.NDArray[numpy.uint8], "
                "out: numpy.typing.NDArray[typing.Any], "
                "values: numpy.typing.NDArray[typing.Any] | None = None, "
                "box: tuple[int, int, int, int] | None = None, flip: bool = False, "
                "planes: bool = False) -> None"),
        "Fill `out` with a resized image, or a box of it, its levels looked up in 256 values.");
  m.def("crop_images", &crop_images, nb::arg("images"), nb::arg("rows"), nb::arg("boxes"),
        nb::arg("flips").none(), nb::arg("out").noconvert(), nb::arg("values").none(),
        nb::arg("planes"), nb::arg("threads"),
        nb::sig("def crop_images(images: numpy.typing.NDArray[numpy.uint8], "
                "rows: numpy.typing.NDArray[numpy.int64], "
                "boxes: numpy.typing.NDArray[numpy.int64], "
                "flips: numpy.typing.NDArray[numpy.uint8] | None, "
                "out: numpy.typing.NDArray[typing.Any], "
                "values: numpy.typing.NDArray[typing.Any] | None, planes: bool, "
                "threads: int) -> None"),
        "Fill `out` with a box of each of some images, resized.");
  m.def("random_boxes", &random_boxes, nb::arg("key"), nb::arg("epoch"), nb::arg("positions"),
        nb::arg("height"), nb::arg("width"), nb::arg("scale"), nb::arg("ratio"),
        nb::sig("def random_boxes(key: tuple[int, int], epoch: int, "
                "positions: numpy.typing.NDArray[numpy.int64], height: int, width: int, "
                "scale: tuple[float, float], ratio: tuple[float, float]) "
                "-> numpy.typing.NDArray[numpy.int64]"),
        "Return a box of a random area and ratio for each row: top, left, height, width.");
  m.def("random_windows", &random_windows, nb::arg("key"), nb::arg("epoch"), nb::arg("positions"),
        nb::arg("height"), nb::arg("width"), nb::arg("box_height"), nb::arg("box_width"),
        nb::sig("def random_windows(key: tuple[int, int], epoch: int, "
                "positions: numpy.typing.NDArray[numpy.int64], height: int, width: int, "
                "box_height: int, box_width: int) -> numpy.typing.NDArray[numpy.int64]"),
        "Return a box of this size in a random place for each row.");
  m.def("random_flips", &random_flips, nb::arg("key"), nb::arg("epoch"), nb::arg("positions"),
        nb::sig("def random_flips(key: tuple[int, int], epoch: int, "
                "positions: numpy.typing.NDArray[numpy.int64]) "
                "-> numpy.typing.NDArray[numpy.uint8]"),
        "Return 1 for each row whose image is to be mirrored, and 0 for the others.");
}

}  // namespace recmap::bind
