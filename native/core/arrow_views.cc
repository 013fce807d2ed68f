#include "arrow_views.h"

#include <cstring>

namespace recmap {
namespace {

constexpr int32_t kMostInline = 12;

struct View {
  int32_t length;
  int32_t prefix;
  int32_t buffer;
  int32_t offset;
};
static_assert(sizeof(View) == kArrowViewSize);

View view_at(Bytes views, size_t row) {
  View view;
  std::memcpy(&view, views.data() + row * kArrowViewSize, sizeof view);
  return view;
}

bool is_sound(const View& view, std::span<const Bytes> buffers) {
  if (view.length < 0) return false;
  if (view.length <= kMostInline) return true;
  if (view.buffer < 0 || view.offset < 0) return false;
  const auto number = static_cast<size_t>(view.buffer);
  if (number >= buffers.size()) return false;
  const auto end = static_cast<uint64_t>(view.offset) + static_cast<uint64_t>(view.length);
  return end <= buffers[number].size();
}

}  // namespace

std::optional<size_t> measure_views(Bytes views, std::span<const Bytes> buffers, Bytes nulls,
                                    std::span<int64_t> offsets) {
  const size_t rows = views.size() / kArrowViewSize;
  int64_t end = 0;
  offsets[0] = 0;
  for (size_t row = 0; row < rows; ++row) {
    if (nulls.empty() || nulls[row] == 0) {
      const View view = view_at(views, row);
      if (!is_sound(view, buffers)) return row;
      end += view.length;
    }
    offsets[row + 1] = end;
  }
  return std::nullopt;
}

void copy_views(Bytes views, std::span<const Bytes> buffers, std::span<const int64_t> offsets,
                std::span<uint8_t> values) {
  for (size_t row = 0; row + 1 < offsets.size(); ++row) {
    const auto length = static_cast<size_t>(offsets[row + 1] - offsets[row]);
    if (length == 0) continue;  // also if it is null
    const View view = view_at(views, row);
    const uint8_t* from = length <= kMostInline
                              ? views.data() + row * kArrowViewSize + sizeof view.length
                              : buffers[static_cast<size_t>(view.buffer)].data() + view.offset;
    std::memcpy(values.data() + offsets[row], from, length);
  }
}

}  // namespace recmap
