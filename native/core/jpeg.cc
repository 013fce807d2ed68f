#include "jpeg.h"

#include <dlfcn.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <vector>

#include "jpeg_abi.h"

namespace recmap {
namespace {

using jpeg_abi::Decompress;
using jpeg_abi::ErrorManager;

struct Library {
  ErrorManager* (*std_error)(ErrorManager*);
  void (*create)(Decompress*, int version, size_t size);
  void (*mem_src)(Decompress*, const uint8_t*, unsigned long size);
  int (*read_header)(Decompress*, int require_image);
  int (*start)(Decompress*);
  void (*crop)(Decompress*, unsigned* left, unsigned* width);
  unsigned (*skip)(Decompress*, unsigned lines);
  unsigned (*read)(Decompress*, uint8_t** lines, unsigned count);
  int (*finish)(Decompress*);
  void (*destroy)(Decompress*);
};

Library library;

template <typename Function>
bool find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  return function != nullptr;
}

// Fancy upsampling mixes neighbouring samples of colour, of which there may be one for four pixels.
constexpr size_t kMargin = 8;
constexpr size_t kMostSide = 65500;  // libjpeg's JPEG_MAX_DIMENSION

// libjpeg's errors jump; so do its warnings, after which pixels are guesses. No object that has a
// destructor may be made between the jump's start and its end.
class Reader {
 public:
  Reader() {
    std::memset(&info_, 0, sizeof info_);
    info_.err = library.std_error(&errors_);
    errors_.error_exit = [](Decompress* info) { give_up(info); };
    errors_.emit_message = [](Decompress* info, int level) {
      if (level < 0) give_up(info);
    };
    errors_.output_message = [](Decompress*) {};
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() {
    if (created_) library.destroy(&info_);
  }

  bool create() {
    info_.client_data = this;  // kept by jpeg_CreateDecompress, as the errors are
    if (setjmp(jump_) != 0) return false;
    library.create(&info_, jpeg_abi::kVersion, sizeof info_);
    created_ = true;
    return true;
  }

  bool read_header(std::span<const uint8_t> data) {
    if (setjmp(jump_) != 0) return false;
    library.mem_src(&info_, data.data(), data.size());
    library.read_header(&info_, 1);
    const int space = info_.jpeg_color_space;
    return info_.data_precision == 8 && info_.num_components <= 3 &&
           (space == jpeg_abi::kGrey || space == jpeg_abi::kYcc || space == jpeg_abi::kRgb);
  }

  JpegHeader header() const {
    return {info_.image_height, info_.image_width, info_.jpeg_color_space != jpeg_abi::kRgb};
  }

  bool start(size_t channels, size_t by) {
    info_.out_color_space = channels == 1   ? jpeg_abi::kGrey
                            : channels == 3 ? jpeg_abi::kExtRgb
                                            : jpeg_abi::kExtRgba;
    info_.scale_num = 1;
    info_.scale_denom = static_cast<unsigned>(by);
    if (setjmp(jump_) != 0) return false;
    return library.start(&info_) != 0 && info_.output_components == static_cast<int>(channels);
  }

  bool holds(const Box& box) const { return box.within(info_.output_height, info_.output_width); }
  size_t width() const { return info_.output_width; }

  // Reads lines through `line`, which has room for a whole one.
  bool read(const Box& box, size_t channels, uint8_t* line, uint8_t* out) {
    unsigned left = static_cast<unsigned>(box.left - std::min(box.left, kMargin));
    const size_t end = std::min(box.left + box.width + kMargin, width());
    unsigned across = static_cast<unsigned>(end) - left;
    if (setjmp(jump_) != 0) return false;
    if (across < width()) library.crop(&info_, &left, &across);
    if (box.top > 0 && library.skip(&info_, static_cast<unsigned>(box.top)) != box.top)
      return false;
    const uint8_t* part = line + (box.left - left) * channels;
    for (size_t y = 0; y < box.height; ++y) {
      if (library.read(&info_, &line, 1) != 1) return false;
      std::memcpy(out + y * box.width * channels, part, box.width * channels);
    }
    return info_.output_scanline < info_.output_height || library.finish(&info_) != 0;
  }

 private:
  [[noreturn]] static void give_up(Decompress* info) {
    longjmp(static_cast<Reader*>(info->client_data)->jump_, 1);
  }

  Decompress info_;
  ErrorManager errors_;
  std::jmp_buf jump_;
  bool created_ = false;
};

}  // namespace

bool use_jpeg_of(const char* path) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);  // stays open
  if (handle == nullptr) return false;
  Library found{};
  const bool all = find(handle, "jpeg_std_error", found.std_error) &&
                   find(handle, "jpeg_CreateDecompress", found.create) &&
                   find(handle, "jpeg_mem_src", found.mem_src) &&
                   find(handle, "jpeg_read_header", found.read_header) &&
                   find(handle, "jpeg_start_decompress", found.start) &&
                   find(handle, "jpeg_crop_scanline", found.crop) &&
                   find(handle, "jpeg_skip_scanlines", found.skip) &&
                   find(handle, "jpeg_read_scanlines", found.read) &&
                   find(handle, "jpeg_finish_decompress", found.finish) &&
                   find(handle, "jpeg_destroy_decompress", found.destroy);
  if (!all) return false;
  library = found;
  return Reader().create();
}

std::optional<JpegHeader> read_jpeg_header(std::span<const uint8_t> data) {
  Reader reader;
  if (!reader.create() || !reader.read_header(data)) return std::nullopt;
  return reader.header();
}

bool decode_jpeg(std::span<const uint8_t> data, size_t channels, size_t by, const Box& box,
                 uint8_t* out) {
  Reader reader;
  if (!reader.create() || !reader.read_header(data) || !reader.start(channels, by)) return false;
  if (!reader.holds(box) || reader.width() > kMostSide) return false;
  std::vector<uint8_t> line(reader.width() * channels);
  return reader.read(box, channels, line.data(), out);
}

}  // namespace recmap
