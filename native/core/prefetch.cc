#include "prefetch.h"

#include "locate.h"
#include "prefetch_spans.h"

namespace recmap {

bool prefetch_rows(Bytes array, size_t row_bytes, std::span<const int64_t> rows) {
  if (row_bytes == 0) return false;
  return prefetch_spans(rows.size(), [&](size_t i) {
    const auto row = static_cast<uint64_t>(rows[i]);
    return row < array.size() / row_bytes ? array.subspan(row * row_bytes, row_bytes) : Bytes{};
  });
}

bool prefetch_records(std::span<const IndexedFile> files, std::span<const uint32_t> owners,
                      std::span<const int64_t> rows) {
  // Of a longer span of several records only the beginning, where the search for the row begins.
  constexpr size_t kLongestSpan = size_t{4} << 20;
  return prefetch_spans(rows.size(), [&](size_t i) {
    const IndexedFile& file = files[owners.empty() ? 0 : owners[i]];
    const Bytes bytes = locate_span(file, static_cast<uint64_t>(rows[i]));
    const auto anchors = file.anchor_rows;
    const bool one_record =
        file.stride != 0 || (anchors.size() > 1 && anchors[1] == anchors[0] + 1);
    return one_record || bytes.size() <= kLongestSpan ? bytes : bytes.first(kHeaderSize);
  });
}

}  // namespace recmap
