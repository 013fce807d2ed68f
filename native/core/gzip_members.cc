#include "gzip_members.h"

#include <algorithm>
#include <cstring>

#include "inflate.h"
#include "parallel.h"

namespace recmap {
namespace {

constexpr size_t kHeader = 10, kTrailer = 8;
// The most bytes that one byte of deflate becomes.
constexpr size_t kMostGrowth = 1032;

size_t little_endian(Bytes bytes) {
  size_t value = 0;
  for (size_t i = bytes.size(); i > 0; --i) value = value << 8 | bytes[i - 1];
  return value;
}

}  // namespace

std::optional<size_t> member_size(Bytes head) {
  constexpr size_t kExtraSize = 2, kSubfield = 4;
  constexpr uint8_t kMagic[] = {0x1f, 0x8b, 8}, kHasExtra = 4;
  if (head.size() < kHeader + kExtraSize || std::memcmp(head.data(), kMagic, sizeof kMagic) != 0 ||
      (head[3] & kHasExtra) == 0) {
    return std::nullopt;
  }
  const size_t extra = little_endian(head.subspan(kHeader, kExtraSize));
  Bytes rest = head.subspan(kHeader + kExtraSize);
  rest = rest.first(std::min(rest.size(), extra));
  while (rest.size() >= kSubfield) {
    const size_t length = little_endian(rest.subspan(2, 2));
    const bool plain = std::memcmp(rest.data(), "IG", 2) == 0 && length == 4;
    const bool less_one = std::memcmp(rest.data(), "BC", 2) == 0 && length == 2;
    rest = rest.subspan(kSubfield);
    if (rest.size() < length) return std::nullopt;
    if (plain || less_one) {
      const size_t size = little_endian(rest.first(length)) + (less_one ? 1 : 0);
      const size_t least = kHeader + kExtraSize + extra + kTrailer;
      return least < size && size <= kMostMember ? std::optional(size) : std::nullopt;
    }
    rest = rest.subspan(length);
  }
  return std::nullopt;
}

std::vector<MemberEnd> find_members(Bytes stored, size_t most) {
  std::vector<MemberEnd> ends;
  MemberEnd end{0, 0};
  for (;;) {
    const Bytes rest = stored.subspan(end.stored);
    const std::optional<size_t> size = member_size(rest);
    if (!size || rest.size() < *size) return ends;
    const size_t plain = little_endian(rest.subspan(*size - 4, 4));
    if (plain > kMostMember || plain > kMostGrowth * *size || plain > most - end.plain) return ends;
    end = {end.stored + *size, end.plain + plain};
    ends.push_back(end);
  }
}

size_t inflate_members(Bytes stored, std::span<const MemberEnd> ends, std::span<uint8_t> out,
                       size_t threads) {
  return first_failure(ends.size(), threads, [&](size_t i) {
    const MemberEnd begin = i == 0 ? MemberEnd{0, 0} : ends[i - 1], end = ends[i];
    return begin.stored <= end.stored && end.stored <= stored.size() && begin.plain <= end.plain &&
           end.plain <= out.size() &&
           inflate_gzip(stored.subspan(begin.stored, end.stored - begin.stored),
                        out.subspan(begin.plain, end.plain - begin.plain));
  });
}

}  // namespace recmap
